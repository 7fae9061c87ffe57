// What the target sends: cutting the stream into PDUs, checking them, and acting on them.

#include <algorithm>
#include <utility>

#include "devices/iscsi/session.h"

namespace lunkeeper::iscsi {
namespace {

// Sense data, fixed or descriptor format (SPC-4, 4.5). Too short: nothing is known.
void ParseSense(const uint8_t* sense, uint32_t length, Task& task) {
  if (length < 4) return;
  const uint8_t format = sense[0] & 0x7f;
  if (format == 0x72 || format == 0x73) {
    task.sense_key = sense[1] & 0x0f;
    task.asc = sense[2];
    task.ascq = sense[3];
  } else {
    task.sense_key = sense[2] & 0x0f;
    if (length >= 14) task.asc = sense[12], task.ascq = sense[13];
  }
}

void TakeResidual(const uint8_t* header, Task& task) {
  if ((header[1] & kResidualUnderflow) == 0) return;
  task.transferred -= std::min(task.transferred, Get32(header + kResidualAt));
}

}  // namespace

int Session::InputSpace(iovec space[2]) {
  int count = 0;
  if (data_in_.task != nullptr && data_in_.left > 0) {  // all that was in the buffer has been copied
    space[count++] = {data_in_.task->data + data_in_.task->internal.received, data_in_.left};
  }
  if (input_begin_ > 0) {
    std::memmove(input_.get(), input_.get() + input_begin_, input_end_ - input_begin_);
    input_end_ -= input_begin_;
    input_begin_ = 0;
  }
  const size_t room = kInputCapacity - input_end_;
  space[count++] = {input_.get() + input_end_, large_data_ ? std::min(room, kHeaderSize) : room};
  return count;
}

size_t Session::awaited() const {
  if (data_in_.task == nullptr) return 1;
  return std::clamp(data_in_.left, 1u, kAwaitAtMost);
}

const Task* Session::WholeData() const {
  const Task* task = data_in_.task;
  if (task == nullptr || data_in_.left != task->length || Padding(data_in_.left) != 0) return nullptr;
  const uint8_t* header = data_in_.header.data();
  const bool good = (header[1] & kDataInStatus) != 0 && header[3] == 0;
  return good && Get32(header + kStatSnAt) == exp_stat_sn_ ? task : nullptr;
}

void Session::Input(size_t count) {
  if (data_in_.task != nullptr) {
    const auto direct = static_cast<uint32_t>(std::min<size_t>(count, data_in_.left));
    data_in_.task->internal.received += direct;
    data_in_.left -= direct;
    count -= direct;
  }
  input_end_ += count;
  while (!broken_ && ParseOne()) {
  }
}

// Takes one PDU, or the next part of one; false if that needs more bytes, or the session is broken.
bool Session::ParseOne() {
  if (data_in_.task != nullptr) return ReceiveDataIn();
  const size_t available = input_end_ - input_begin_;
  if (available < kHeaderSize) return false;
  const uint8_t* header = input_.get() + input_begin_;
  const size_t begin = kHeaderSize + size_t{header[kAhsLengthAt]} * 4;
  const uint32_t length = Get24(header + kDataLengthAt);
  if ((header[0] & kOpcodeMask) == kDataIn) {
    if (available < begin) return false;
    if (!OnDataIn(header, length)) return false;
    large_data_ = length >= kLargeData;
    input_begin_ += begin;
    return true;
  }
  const size_t total = begin + length + Padding(length);
  if (total > kInputCapacity) return Violation("a PDU of %zu bytes with opcode %02x", total, header[0]);
  if (available < total) return false;
  large_data_ = false;
  input_begin_ += total;
  return OnPdu(header, header + begin, length);
}

bool Session::OnPdu(const uint8_t* header, const uint8_t* data, uint32_t length) {
  const uint8_t opcode = header[0] & kOpcodeMask;
  if (full_feature_ == (opcode == kLoginResponse)) return Violation("opcode %02x out of phase", opcode);
  TakeCmdSn(header);
  switch (opcode) {
    case kLoginResponse:
      return OnLoginResponse(header, data, length);
    case kScsiResponse:
      return OnScsiResponse(header, data, length);
    case kR2t:
      return OnR2t(header);
    case kNopIn:
      return OnNopIn(header);
    case kAsyncMessage:
      return OnAsyncMessage(header);
    case kReject:
      return Violation("it rejected a PDU (reason %02x)", header[2]);
    case kTaskManagementResponse:
      if (!std::exchange(resetting_, false)) return Violation("it answered a reset nobody asked for");
      if (!TakeStatSn(header)) return false;
      handler_->OnReset(header[2]);
      return true;
    case kLogoutResponse:
      if (!std::exchange(logging_out_, false)) return Violation("it answered a logout nobody asked for");
      handler_->OnLoggedOut();
      return true;
    default:
      return Violation("unknown opcode %02x", opcode);
  }
}

bool Session::OnLoginResponse(const uint8_t* header, const uint8_t* data, uint32_t length) {
  if (control_count_ > 0 || pdus_ > 0) return Violation("it answered a login before it was asked");
  exp_stat_sn_ = Get32(header + kStatSnAt) + 1;
  const std::string_view text(reinterpret_cast<const char*>(data), length);
  switch (login_.OnResponse(header[1], header[36], header[37], text)) {
    case LoginStep::kSend:
      SendLogin();
      return true;
    case LoginStep::kDone:
      full_feature_ = true;
      handler_->OnLoggedIn();
      return true;
    case LoginStep::kRefused:
      refused_ = true;
      [[fallthrough]];
    case LoginStep::kBroken:
      Break(login_.failure());
      return false;
  }
  return false;
}

bool Session::OnDataIn(const uint8_t* header, uint32_t length) {
  if (!full_feature_) return Violation("data before the login is over");
  TakeCmdSn(header);
  Task* task = FindTask(header);
  if (task == nullptr || task->direction != Direction::kIn) return Violation("data for no read of ours");
  auto& state = task->internal;
  if (Get32(header + kDataSnAt) != state.in_sn) return Violation("data out of sequence");
  if (Get32(header + kBufferOffsetAt) != state.received || length > task->length - state.received) {
    return Violation("data for offset %u, length %u, where %u of %u were here",
                     Get32(header + kBufferOffsetAt), length, state.received, task->length);
  }
  ++state.in_sn;
  data_in_.task = task;
  data_in_.left = length;
  std::memcpy(data_in_.header.data(), header, kHeaderSize);
  return true;
}

bool Session::ReceiveDataIn() {
  auto& state = data_in_.task->internal;
  const auto available = static_cast<uint32_t>(input_end_ - input_begin_);
  const uint32_t take = std::min(available, data_in_.left);
  if (take > 0) std::memcpy(data_in_.task->data + state.received, input_.get() + input_begin_, take);
  state.received += take;
  data_in_.left -= take;
  input_begin_ += take;
  const uint32_t padding = Padding(Get24(data_in_.header.data() + kDataLengthAt));
  if (data_in_.left > 0 || available - take < padding) return false;
  input_begin_ += padding;
  return FinishDataIn();
}

bool Session::FinishDataIn() {
  Task* task = std::exchange(data_in_.task, nullptr);
  const uint8_t* header = data_in_.header.data();
  if ((header[1] & kDataInStatus) == 0) return true;
  if (!TakeStatSn(header)) return false;
  task->status = header[3];
  task->transferred = task->internal.received;
  return Complete(task);
}

bool Session::OnScsiResponse(const uint8_t* header, const uint8_t* data, uint32_t length) {
  Task* task = FindTask(header);
  if (task == nullptr) return Violation("an answer to no command of ours");
  if (!TakeStatSn(header)) return false;
  task->response = header[2];
  task->status = header[3];
  if (task->direction == Direction::kIn) {
    task->transferred = task->internal.received;
  } else {
    task->transferred = task->length;
    TakeResidual(header, *task);
  }
  if (length >= 2) ParseSense(data + 2, std::min<uint32_t>(Get16(data), length - 2), *task);
  const bool all_sent = task->internal.send_offset == task->length || task->direction != Direction::kOut;
  if (task->response == 0 && task->status == 0 && !all_sent)
    return Violation("a write is done before its data");
  return Complete(task);
}

bool Session::OnR2t(const uint8_t* header) {
  Task* task = FindTask(header);
  if (task == nullptr || task->direction != Direction::kOut)
    return Violation("it wants data for no write of ours");
  auto& state = task->internal;
  const uint32_t offset = Get32(header + kBufferOffsetAt), length = Get32(header + kR2tLengthAt);
  if (state.queued || Get32(header + kDataSnAt) != state.in_sn || offset != state.send_offset ||
      length == 0 || length > std::min(task->length - offset, login_.parameters().max_burst)) {
    return Violation("it wants %u bytes from %u of a write of %u at %u", length, offset, task->length,
                     state.send_offset);
  }
  ++state.in_sn;
  state.send_left = length;
  state.target_tag = Get32(header + kTargetTagAt);
  state.data_sn = 0;
  QueueForSending(task);
  return true;
}

bool Session::OnNopIn(const uint8_t* header) {
  if (Get32(header + kTagAt) != kNoTag) {
    if (!std::exchange(pinging_, false)) return Violation("it answered a ping nobody sent");
    if (!TakeStatSn(header)) return false;
  }
  if (Get32(header + kTargetTagAt) == kNoTag) return true;
  Header* answer = NewControl(kNopOut, kNoTag);
  if (answer == nullptr) return Violation("it sends pings without reading the answers");
  std::memcpy(answer->data() + kLunAt, header + kLunAt, 8);
  std::memcpy(answer->data() + kTargetTagAt, header + kTargetTagAt, 4);
  return true;
}

// RFC 7143, 11.9.1. All but the SCSI and vendor events mean that this session ends.
bool Session::OnAsyncMessage(const uint8_t* header) {
  if (!TakeStatSn(header)) return false;
  const uint8_t event = header[36];
  if (event == 0 || event == 255) return true;
  failure_.Set("the target ends the session (asynchronous event %u)", event);
  broken_ = true;
  return false;
}

bool Session::TakeStatSn(const uint8_t* header) {
  const uint32_t stat_sn = Get32(header + kStatSnAt);
  if (stat_sn != exp_stat_sn_) return Violation("status %u came where %u was due", stat_sn, exp_stat_sn_);
  ++exp_stat_sn_;
  return true;
}

void Session::TakeCmdSn(const uint8_t* header) {
  const uint32_t expected = Get32(header + kExpCmdSnAt), max = Get32(header + kMaxCmdSnAt);
  if (SerialLess(max, expected - 1)) return;  // RFC 7143, 4.2.2.1
  if (SerialLess(exp_cmd_sn_, expected)) exp_cmd_sn_ = expected;
  if (SerialLess(max_cmd_sn_, max)) max_cmd_sn_ = max;
}

Task* Session::FindTask(const uint8_t* header) {
  const uint32_t tag = Get32(header + kTagAt);
  const uint32_t slot = tag & 0xffff;
  if (slot >= tasks_.size()) return nullptr;
  Task& task = tasks_[slot];
  return task.internal.active && task.internal.command_sent && task.internal.tag == tag ? &task : nullptr;
}

// The target is done with the task; we are once none of its data is on its way out.
bool Session::Complete(Task* task) {
  auto& state = task->internal;
  if (state.queued) Unqueue(task);
  state.command_sent = false;  // nothing more may come for it
  if (pdus_ > 0 && state.batch == batch_) {
    state.next = early_;
    early_ = task;
  } else {
    Finish(task);
  }
  return !broken_;
}

void Session::Finish(Task* task) {
  task->internal.active = false;
  handler_->OnTaskDone(*task);
  free_.push_back(static_cast<uint32_t>(task - tasks_.data()));
}

}  // namespace lunkeeper::iscsi
