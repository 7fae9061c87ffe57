// Every PDU that comes is answered here at once; nothing is kept of it but numbers in its task. The rules
// that bound what a target can make us do:
//
//  - it names tasks by a tag that we chose, and a tag is not soon used again (task_table.h);
//  - data and R2Ts must come in order and stay inside the task's length (OnDataIn, OnR2t), which the login
//    negotiated (DataPDUInOrder, DataSequenceInOrder, one outstanding R2T);
//  - StatSN must be the next one, so that no answer is missing (CheckStatSn);
//  - answers to requests that we did not make end the session.
//
// A write passes through: command with immediate data -> unsolicited data up to the first burst -> for each
// R2T a burst -> response. A target may answer before all data went out (an error); the task's memory is then
// still part of the batch that is being sent, so the task is held in `early_` until that batch has gone.

#include "devices/iscsi/initiator_session.h"

#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <utility>

#include "devices/iscsi/async_message.h"
#include "devices/iscsi/pdu_headers.h"
#include "devices/iscsi/scsi_response.h"

namespace lunkeeper::iscsi {

InitiatorSession::InitiatorSession(const Connection& connection, uint32_t depth, SessionHandler* handler)
    : connection_(connection), handler_(handler), login_(connection), tasks_(depth) {}

// Everything of the connection before goes, commands in flight included: their owner knows which they were.
void InitiatorSession::BeginLogin() {
  time_to_wait_ = {};
  full_feature_ = broken_ = refused_ = corrupted_ = false;
  resetting_ = pinging_ = logging_out_ = false;
  tasks_.ForgetAll();
  numbers_.Restart();
  unsent_commands_ = 0;
  reader_.ForgetInput();
  writer_.ForgetBatch();
  writer_.AddDigests(false, false);
  send_queue_.Clear();
  early_ = nullptr;
  control_count_ = 0;
  login_.BeginLogin();
  QueueLogin();
}

Task* InitiatorSession::NewTask() {
  if (!full_feature_ || broken_ || !numbers_.HasRoom(unsent_commands_)) return nullptr;
  return tasks_.NextFree();
}

void InitiatorSession::StartTask(Task* task) {
  tasks_.TakeTask(task);
  ++unsent_commands_;
  send_queue_.PushBack(task);
}

void InitiatorSession::BreakOff(const char* what) {
  if (!broken_) failure_.Format("%s", what);
  broken_ = true;
}

// failure() keeps the first failure; what follows in the same input are its consequences.
bool InitiatorSession::FailProtocol(const char* format, ...) {
  char what[120];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (!broken_) failure_.Format("the target broke the protocol: %s", what);
  broken_ = true;
  return false;
}

// Whole, good, and next: the status must come with the data and be GOOD, and nothing of it may be missing.
// Nothing may come behind them, since a digest has to be checked first. Then the bytes may go past this
// session (lun_connection.cc).
const Task* InitiatorSession::WholeData() const {
  const Task* task = reader_.data_in_task();
  const uint32_t left = reader_.data_in_left();
  if (task == nullptr || left != task->length || reader_.data_in_trailer() != 0) return nullptr;
  const uint8_t* header = reader_.data_in_header();
  const bool good = (header[1] & kDataInStatus) != 0 && header[3] == 0;
  return good && Get32(header + kStatSnAt) == numbers_.exp_stat_sn() ? task : nullptr;
}

void InitiatorSession::TakeInput(size_t count) {
  reader_.AddInput(count);
  while (!broken_ && ActOnNext()) {
  }
}

bool InitiatorSession::ActOnNext() {
  PduReader::Pdu pdu;
  switch (reader_.CutNext(&pdu)) {
    case PduReader::Found::kNothing:
      return false;
    case PduReader::Found::kPdu:
      return OnPdu(pdu);
    case PduReader::Found::kDataIn:
      return OnDataIn(pdu);
    case PduReader::Found::kDataInEnd:
      return OnDataInEnd();
    case PduReader::Found::kWrongHeader:
      return FailDigest("the header digest of what the target sent is wrong");
    case PduReader::Found::kWrongData:
      return FailDigest("the data digest of what the target sent is wrong");
    case PduReader::Found::kTooLong:
      break;
  }
  return FailProtocol("a PDU of %zu bytes with opcode %02x", pdu.size, pdu.header[0]);
}

bool InitiatorSession::OnPdu(const PduReader::Pdu& pdu) {
  const uint8_t* header = pdu.header;
  const uint8_t opcode = header[0] & kOpcodeMask;
  // Login responses before the full feature phase and only then; everything else after it.
  if (full_feature_ == (opcode == kLoginResponse)) return FailProtocol("opcode %02x out of phase", opcode);
  numbers_.UpdateWindow(header);
  switch (opcode) {
    case kLoginResponse:
      return OnLoginResponse(pdu);
    case kScsiResponse:
      return OnScsiResponse(pdu);
    case kR2t:
      return OnR2t(header);
    case kNopIn:
      return OnNopIn(header);
    case kAsyncMessage:
      return OnAsyncMessage(pdu);
    case kTaskManagementResponse:
      return OnResetResponse(header);
    case kLogoutResponse:
      return OnLogoutResponse(header);
    case kReject:
      if (header[2] == kRejectDataDigest) return FailDigest("the target found a wrong data digest");
      return FailProtocol("it rejected a PDU (reason %02x)", header[2]);
    default:
      return FailProtocol("unknown opcode %02x", opcode);
  }
}

bool InitiatorSession::OnResetResponse(const uint8_t* header) {
  if (!std::exchange(resetting_, false)) return FailProtocol("it answered a reset nobody asked for");
  if (!CheckStatSn(header)) return false;
  handler_->OnReset(header[2]);
  return true;
}

// The target may close the connection with it, so nothing more is read of this session.
bool InitiatorSession::OnLogoutResponse(const uint8_t* header) {
  if (!std::exchange(logging_out_, false)) return FailProtocol("it answered a logout nobody asked for");
  time_to_wait_ = std::chrono::seconds(Get16(header + kLogoutTimeToWaitAt));
  handler_->OnLoggedOut();
  return true;
}

bool InitiatorSession::OnLoginResponse(const PduReader::Pdu& pdu) {
  // An answer while our request still waits to be sent: it cannot be the answer to that.
  if (control_count_ > 0 || writer_.has_batch())
    return FailProtocol("it answered a login before it was asked");
  numbers_.SetStatSn(Get32(pdu.header + kStatSnAt));
  const std::string_view text(reinterpret_cast<const char*>(pdu.data), pdu.length);
  switch (login_.OnResponse(pdu.header[1], pdu.header[36], pdu.header[37], text)) {
    case LoginStep::kSend:
      QueueLogin();
      return true;
    case LoginStep::kDone:
      full_feature_ = true;
      reader_.ExpectDigests(login_.parameters().header_digest, login_.parameters().data_digest);
      writer_.AddDigests(login_.parameters().header_digest, login_.parameters().data_digest);
      handler_->OnLoggedIn();
      return true;
    case LoginStep::kRefused:
      refused_ = true;  // final for the Lun: what a fenced grant looks like
      [[fallthrough]];
    case LoginStep::kBroken:
      BreakOff(login_.failure());
      return false;
  }
  return false;
}

bool InitiatorSession::OnDataIn(const PduReader::Pdu& pdu) {
  const uint8_t* header = pdu.header;
  if (!full_feature_) return FailProtocol("data before the login is over");
  numbers_.UpdateWindow(header);
  Task* task = FindTask(header);
  if (task == nullptr || task->direction != Direction::kIn) return FailProtocol("data for no read of ours");
  auto& state = task->internal;
  if (Get32(header + kDataSnAt) != state.in_sn) return FailProtocol("data out of sequence");
  if (Get32(header + kBufferOffsetAt) != state.received || pdu.length > task->length - state.received) {
    return FailProtocol("data for offset %u, length %u, where %u of %u were here",
                        Get32(header + kBufferOffsetAt), pdu.length, state.received, task->length);
  }
  ++state.in_sn;
  reader_.BeginDataIn(task, pdu);
  return true;
}

// The status may come with the last data instead of in a response of its own.
bool InitiatorSession::OnDataInEnd() {
  Task* task = reader_.EndDataIn();
  const uint8_t* header = reader_.data_in_header();
  if ((header[1] & kDataInStatus) == 0) return true;
  if (!CheckStatSn(header)) return false;
  task->status = header[3];
  task->transferred = task->internal.received;
  return CompleteTask(task);
}

bool InitiatorSession::OnScsiResponse(const PduReader::Pdu& pdu) {
  const uint8_t* header = pdu.header;
  Task* task = FindTask(header);
  if (task == nullptr) return FailProtocol("an answer to no command of ours");
  if (!CheckStatSn(header)) return false;
  TakeResponse(pdu, *task);
  // An error may come early. A success may not: the target cannot have written what it was not sent.
  const bool all_sent = task->internal.send_offset == task->length || task->direction != Direction::kOut;
  if (IsSuccess(*task) && !all_sent) return FailProtocol("a write is done before its data");
  return CompleteTask(task);
}

bool InitiatorSession::OnR2t(const uint8_t* header) {
  Task* task = FindTask(header);
  if (task == nullptr || task->direction != Direction::kOut)
    return FailProtocol("it wants data for no write of ours");
  auto& state = task->internal;
  const uint32_t offset = Get32(header + kBufferOffsetAt);
  const uint32_t length = Get32(header + kR2tLengthAt);
  // At most one R2T at a time (MaxOutstandingR2T=1), for the bytes that come next, within a burst.
  if (state.queued || Get32(header + kDataSnAt) != state.in_sn || offset != state.send_offset ||
      length == 0 || length > std::min(task->length - offset, login_.parameters().max_burst)) {
    return FailProtocol("it wants %u bytes from %u of a write of %u at %u", length, offset, task->length,
                        state.send_offset);
  }
  ++state.in_sn;
  state.send_left = length;
  state.target_tag = Get32(header + kTargetTagAt);
  state.data_sn = 0;
  send_queue_.PushBack(task);
  return true;
}

bool InitiatorSession::OnNopIn(const uint8_t* header) {
  // With a tag of ours it answers a ping; with a target's tag it is one. It may be both.
  if (Get32(header + kTagAt) != kNoTag) {
    if (!std::exchange(pinging_, false)) return FailProtocol("it answered a ping nobody sent");
    if (!CheckStatSn(header)) return false;
  }
  if (Get32(header + kTargetTagAt) == kNoTag) return true;
  if (!QueueControl(PingAnswerHeader(header)))
    return FailProtocol("it sends pings without reading the answers");
  return true;
}

bool InitiatorSession::OnAsyncMessage(const PduReader::Pdu& pdu) {
  if (!CheckStatSn(pdu.header)) return false;
  const AsyncMessage message = ReadAsyncMessage(pdu);
  using Kind = AsyncMessage::Kind;
  if (message.kind == Kind::kLostWrite) handler_->OnLostWrite();
  if (message.kind == Kind::kLogout) handler_->OnLogoutWanted(message.time);
  if (message.kind == Kind::kEnd) {
    time_to_wait_ = message.time;
    BreakOff("the target ends the session");
  }
  return !broken_;
}

bool InitiatorSession::CheckStatSn(const uint8_t* header) {
  const uint32_t stat_sn = Get32(header + kStatSnAt);
  const uint32_t due = numbers_.exp_stat_sn();
  if (numbers_.TakeStatSn(stat_sn)) return true;
  return FailProtocol("status %u came where %u was due", stat_sn, due);
}

// Only what the target has been asked can be answered.
Task* InitiatorSession::FindTask(const uint8_t* header) {
  Task* task = tasks_.FindTask(Get32(header + kTagAt));
  return task != nullptr && task->internal.command_sent ? task : nullptr;
}

// The target is done with the task; we are once none of its data is on its way out.
bool InitiatorSession::CompleteTask(Task* task) {
  auto& state = task->internal;
  if (state.queued) send_queue_.Remove(task);
  state.command_sent = false;  // nothing more may come for it
  if (writer_.has_batch() && state.batch == writer_.batch()) {
    state.next = early_;
    early_ = task;
  } else {
    FinishTask(task);
  }
  return !broken_;
}

// The slot is free only after the handler: it must not be used again while the handler looks at the task.
void InitiatorSession::FinishTask(Task* task) {
  task->internal.active = false;
  handler_->OnTaskDone(*task);
  tasks_.FreeTask(task);
}

int InitiatorSession::OutputPieces(const iovec** pieces) {
  if (broken_) return 0;
  if (!writer_.has_pieces()) FillBatch();
  return writer_.Pieces(pieces);
}

void InitiatorSession::MarkSent(size_t count) {
  if (!writer_.MarkSent(count)) return;
  Task* task = std::exchange(early_, nullptr);
  while (task != nullptr) FinishTask(std::exchange(task, task->internal.next));
}

// Requests that are no task go first: a ping or a logout must not wait behind a long write. Their numbers are
// filled in only here, since commands may have been numbered since they were queued.
void InitiatorSession::FillBatch() {
  for (size_t i = 0; i < control_count_; ++i) {
    Control& control = controls_[i];
    SetNumbers(numbers_, control.header);
    const std::string_view text = control.is_login ? login_.text() : std::string_view();
    writer_.AddPdu(control.header, text.data(), static_cast<uint32_t>(text.size()));
  }
  control_count_ = 0;
  while (send_queue_.front() != nullptr && !writer_.full()) {
    Task* task = send_queue_.front();
    if (task->internal.command_sent) {
      SendDataOut(task);
    } else {
      SendCommand(task);
    }
    if (task->internal.send_left == 0) send_queue_.Remove(task);
  }
}

// With as much immediate data as was agreed. What remains of the first burst goes out without waiting for an
// R2T, where that was agreed (InitialR2T=No): a small write is then one round trip.
void InitiatorSession::SendCommand(Task* task) {
  auto& state = task->internal;
  const NegotiatedParameters& agreed = login_.parameters();
  uint32_t length = 0;
  uint32_t unsolicited = 0;
  if (task->direction == Direction::kOut) {
    const uint32_t first = std::min(task->length, agreed.first_burst);
    if (agreed.immediate_data) length = std::min(first, agreed.max_send_segment);
    if (!agreed.initial_r2t) unsolicited = first - length;
  }
  writer_.AddPdu(CommandHeader(*task, connection_.lun, unsolicited == 0, numbers_), task->data, length);
  state.command_sent = true;
  state.send_left = unsolicited;
  state.target_tag = kNoTag;
  state.send_offset += length;
  if (length > 0) state.batch = writer_.batch();
  --unsent_commands_;
  numbers_.CountCommand();
}

// One PDU of the data that are due; the caller repeats it until send_left is 0.
void InitiatorSession::SendDataOut(Task* task) {
  auto& state = task->internal;
  const uint32_t length = std::min(state.send_left, login_.parameters().max_send_segment);
  writer_.AddPdu(DataOutHeader(*task, connection_.lun, length, numbers_), task->data + state.send_offset,
                 length);
  state.send_left -= length;
  state.send_offset += length;
  if (length > 0) state.batch = writer_.batch();
}

// False if too many wait already: the target does not read what is sent to it.
bool InitiatorSession::QueueControl(const Header& header, bool is_login) {
  if (control_count_ == kControls) return false;
  controls_[control_count_++] = {header, is_login};
  return true;
}

void InitiatorSession::QueueLogin() { QueueControl(LoginHeader(login_.flags(), connection_.lun), true); }

void InitiatorSession::ResetLun() {
  if (!QueueControl(LunResetHeader(connection_.lun))) return BreakOff("the target does not take the reset");
  resetting_ = true;
}

void InitiatorSession::SendPing() {
  if (pinging_) return;
  pinging_ = QueueControl(NopOutHeader(kPingTag));
}

void InitiatorSession::SendLogout() {
  if (logging_out_) return;
  if (!QueueControl(LogoutHeader())) return BreakOff("the target does not take the logout");
  logging_out_ = true;
}

}  // namespace lunkeeper::iscsi
