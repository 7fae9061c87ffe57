// What goes to the target: PDUs are put together in batches, headers here and payloads where they lie.

#include <algorithm>
#include <utility>

#include "devices/iscsi/session.h"

namespace lunkeeper::iscsi {
namespace {

// The same for ever: a new login then ends what is left of the session before it (RFC 7143, 6.3.5). The
// initiator's name is a node's and the target a grant's, so nobody else has it.
constexpr std::array<uint8_t, 6> kIsid = {0x80, 0x4c, 0x4b, 0x00, 0x00, 0x01};

// Tags of what is not a task; no task has them, since there are fewer than 0xfff0 slots.
constexpr uint32_t kPingTag = 0xfffffff0, kResetTag = 0xfffffff1, kLogoutTag = 0xfffffff2,
                   kLoginTag = 0xfffffff3;

constexpr char kZeros[4] = {};

}  // namespace

int Session::Output(const iovec** pieces) {
  if (broken_) return 0;
  if (pieces_begin_ == pieces_end_) FillBatch();
  *pieces = pieces_.data() + pieces_begin_;
  return pieces_end_ - pieces_begin_;
}

void Session::Sent(size_t count) {
  while (count > 0) {
    iovec& piece = pieces_[static_cast<size_t>(pieces_begin_)];
    const size_t part = std::min(count, piece.iov_len);
    piece.iov_base = static_cast<char*>(piece.iov_base) + part;
    piece.iov_len -= part;
    count -= part;
    if (piece.iov_len == 0) ++pieces_begin_;
  }
  if (pieces_begin_ == pieces_end_) EndBatch();
}

void Session::EndBatch() {
  pdus_ = pieces_begin_ = pieces_end_ = 0;
  ++batch_;
  Task* task = std::exchange(early_, nullptr);
  while (task != nullptr) Finish(std::exchange(task, task->internal.next));
}

void Session::FillBatch() {
  for (size_t i = 0; i < control_count_; ++i) {
    Control& control = controls_[i];
    Put32(control.header.data() + kCmdSnAt, cmd_sn_);
    Put32(control.header.data() + kExpStatSnAt, exp_stat_sn_);
    const std::string_view text = control.login ? login_.text() : std::string_view();
    AddPdu(control.header, text.data(), static_cast<uint32_t>(text.size()));
  }
  control_count_ = 0;
  while (send_head_ != nullptr && pdus_ < kBatchPdus) {
    Task* task = send_head_;
    SendNext(task);
    if (task->internal.send_left == 0) Unqueue(task);
  }
}

void Session::AddPdu(const Header& header, const char* data, uint32_t length) {
  Header& place = headers_[static_cast<size_t>(pdus_++)];
  place = header;
  Put24(place.data() + kDataLengthAt, length);
  iovec* last = pieces_end_ > 0 ? &pieces_[static_cast<size_t>(pieces_end_ - 1)] : nullptr;
  const auto add = [this](const void* base, size_t size) {
    pieces_[static_cast<size_t>(pieces_end_++)] = {const_cast<void*>(base), size};
  };
  if (last != nullptr && static_cast<uint8_t*>(last->iov_base) + last->iov_len == place.data()) {
    last->iov_len += kHeaderSize;  // headers in a row are one piece
  } else {
    add(place.data(), kHeaderSize);
  }
  if (length > 0) add(data, length);
  if (Padding(length) > 0) add(kZeros, Padding(length));
}

// The command with its immediate data, or the next piece of the burst that is due.
void Session::SendNext(Task* task) {
  auto& state = task->internal;
  const Parameters& agreed = login_.parameters();
  uint32_t length = 0;
  if (state.command_sent) {
    length = std::min(state.send_left, agreed.max_send_segment);
    AddPdu(DataOutHeader(task, length), task->data + state.send_offset, length);
    state.send_left -= length;
  } else {
    uint32_t unsolicited = 0;
    if (task->direction == Direction::kOut) {
      const uint32_t first = std::min(task->length, agreed.first_burst);
      if (agreed.immediate_data) length = std::min(first, agreed.max_send_segment);
      if (!agreed.initial_r2t) unsolicited = first - length;
    }
    AddPdu(CommandHeader(task, unsolicited == 0), task->data, length);
    state.command_sent = true;
    state.send_left = unsolicited;
    state.target_tag = kNoTag;
    --unsent_commands_;
    ++cmd_sn_;
  }
  state.send_offset += length;
  if (length > 0) state.batch = batch_;
}

Header Session::CommandHeader(const Task* task, bool final) const {
  Header header{};
  uint8_t flags = kAttributeSimple;
  if (final) flags |= kFinal;
  if (task->direction == Direction::kIn) flags |= kCommandRead;
  if (task->direction == Direction::kOut) flags |= kCommandWrite;
  header[0] = kScsiCommand;
  header[1] = flags;
  PutLun(header.data() + kLunAt, connection_.lun);
  Put32(header.data() + kTagAt, task->internal.tag);
  Put32(header.data() + kExpectedLengthAt, task->length);
  Put32(header.data() + kCmdSnAt, cmd_sn_);
  Put32(header.data() + kExpStatSnAt, exp_stat_sn_);
  std::memcpy(header.data() + kCdbAt, task->cdb.data(), task->cdb.size());
  return header;
}

Header Session::DataOutHeader(Task* task, uint32_t length) const {
  Header header{};
  auto& state = task->internal;
  header[0] = kDataOut;
  header[1] = length == state.send_left ? kFinal : 0;
  PutLun(header.data() + kLunAt, connection_.lun);
  Put32(header.data() + kTagAt, state.tag);
  Put32(header.data() + kTargetTagAt, state.target_tag);
  Put32(header.data() + kExpStatSnAt, exp_stat_sn_);
  Put32(header.data() + kDataSnAt, state.data_sn++);
  Put32(header.data() + kBufferOffsetAt, state.send_offset);
  return header;
}

void Session::QueueForSending(Task* task) {
  task->internal.queued = true;
  task->internal.next = nullptr;
  (send_head_ == nullptr ? send_head_ : send_tail_->internal.next) = task;
  send_tail_ = task;
}

void Session::Unqueue(Task* task) {
  Task* previous = nullptr;
  for (Task* at = send_head_; at != task; at = at->internal.next) previous = at;
  (previous == nullptr ? send_head_ : previous->internal.next) = task->internal.next;
  if (send_tail_ == task) send_tail_ = previous;
  task->internal.queued = false;
}

// A request of ours that is no task; nullptr if too many wait already.
Header* Session::NewControl(Opcode opcode, uint32_t tag) {
  if (control_count_ == kControls) return nullptr;
  Control& control = controls_[control_count_++];
  control.login = opcode == kLoginRequest;
  control.header = Header{};
  control.header[0] = opcode | kImmediate;
  control.header[1] = kFinal;
  Put32(control.header.data() + kTagAt, tag);
  Put32(control.header.data() + kTargetTagAt, kNoTag);
  return &control.header;
}

void Session::SendLogin() {
  Header& header = *NewControl(kLoginRequest, kLoginTag);
  header[1] = login_.flags();
  std::copy(kIsid.begin(), kIsid.end(), header.begin() + kLunAt);
  Put32(header.data() + kTargetTagAt, 0);  // the connection's id
}

void Session::Reset() {
  Header* header = NewControl(kTaskManagement, kResetTag);
  if (header == nullptr) return Break("the target does not take the reset");
  (*header)[1] = kFinal | kLogicalUnitReset;
  PutLun(header->data() + kLunAt, connection_.lun);
  resetting_ = true;
}

void Session::Ping() {
  if (pinging_) return;
  pinging_ = NewControl(kNopOut, kPingTag) != nullptr;
}

void Session::Logout() {
  Header* header = NewControl(kLogoutRequest, kLogoutTag);
  if (header == nullptr) return Break("the target does not take the logout");
  Put32(header->data() + kTargetTagAt, 0);  // reason 0: the session ends
  logging_out_ = true;
}

}  // namespace lunkeeper::iscsi
