// Two layers: Execute puts one command into the session and judges the answer; MoveBytesUntil moves bytes
// between the session and the socket until a condition holds, or the time is over. Everything that the target
// sends is checked by InitiatorSession, but for the size of the LUN (scsi.h) and how much it took or gave.
//
// InitiatorSession has only pointers to a command's data. So a command that is given up ends the session: its
// memory is the caller's again, and no more bytes may come for it.

#include "devices/iscsi/block_session.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "devices/iscsi/scsi_codes.h"
#include "devices/iscsi/scsi_response.h"

namespace lunkeeper::iscsi {
namespace {

// A LUN has at most a few of them waiting: power on, parameters changed, capacity changed, reservations gone.
constexpr int kMostUnitAttentions = 8;
// Of one poll, whose time is an int.
constexpr absl::Duration kLongestWait = absl::Hours(1);

// The caller chooses the portal.
Connection AtItsOwnPortal(Connection connection) {
  connection.other_portals.clear();
  return connection;
}

bool IsUnitAttention(const Task& task) {
  return task.response == 0 && task.status == kCheckCondition && task.sense_key == kUnitAttention &&
         !task.deferred;
}

}  // namespace

BlockSession::BlockSession(const Connection& connection, absl::Duration timeout)
    : connection_(AtItsOwnPortal(connection)),
      timeout_(timeout),
      session_(connection_, 1, this),
      socket_(connection_, &session_) {}

absl::StatusOr<std::unique_ptr<BlockSession>> BlockSession::Login(const Connection& connection,
                                                                  absl::Duration timeout) {
  std::unique_ptr<BlockSession> session(new BlockSession(connection, timeout));
  const SteadyDeadline deadline(timeout);
  RETURN_IF_ERROR(session->OpenConnection(deadline));
  RETURN_IF_ERROR(session->SendLogin(deadline));
  RETURN_IF_ERROR(session->ReadCapacity(deadline));
  return session;
}

absl::Status BlockSession::OpenConnection(const SteadyDeadline& deadline) {
  constexpr char kWhat[] = "connect";
  if (!socket_.has_address())
    return MakeError(absl::StatusCode::kInvalidArgument, kWhat,
                     "the portal is not a numeric address and port");
  LunConnection::Attempt attempt{.error = socket_.Open()};
  while (attempt.error == 0 && !attempt.connected) {
    RETURN_IF_ERROR(AwaitSocket(kWhat, POLLOUT, deadline));
    attempt = socket_.FinishOpen();
  }
  if (attempt.error == 0) return absl::OkStatus();
  return EndSession(absl::StatusCode::kUnavailable, kWhat, std::strerror(attempt.error));
}

absl::Status BlockSession::SendLogin(const SteadyDeadline& deadline) {
  session_.BeginLogin();
  return MoveBytesUntil("login", deadline, [this] { return session_.logged_in(); });
}

// Unit attentions that wait for the first command after a login ("power on") are answered here already.
absl::Status BlockSession::ReadCapacity(const SteadyDeadline& deadline) {
  constexpr char kWhat[] = "read capacity";
  std::array<char, kMaxAnswer> bytes = {};
  RETURN_IF_ERROR(
      Execute(kWhat, deadline, [&](Task& task) { BuildQuestion(Question::kCapacity, bytes.data(), task); }));
  if (TakeAnswer(Question::kCapacity, answer_, facts_)) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInternal, kWhat, "the answer makes no sense for a disk");
}

absl::Status BlockSession::ReadBlocks(uint64_t lba, std::span<char> data) {
  return Transfer("read", LunOp::kRead, lba, data);
}

// What is written is only read, through a pointer that Task and iovec want to be one to char.
absl::Status BlockSession::WriteBlocks(uint64_t lba, std::span<const char> data) {
  return Transfer("write", LunOp::kWrite, lba, {const_cast<char*>(data.data()), data.size()});
}

absl::Status BlockSession::Transfer(const char* what, LunOp op, uint64_t lba, std::span<char> data) {
  const uint64_t blocks = data.size() / facts_.block_size;
  if (data.empty() || data.size() % facts_.block_size != 0 || data.size() > kMaxTransferBytes ||
      blocks > facts_.blocks || lba > facts_.blocks - blocks) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, what,
        absl::StrFormat(
            "%d bytes at block %d are not whole blocks of %d, more than %d, or not within the LUN",
            data.size(), lba, facts_.block_size, kMaxTransferBytes));
  }
  LunRequest request;
  request.op = op;
  request.offset = lba * facts_.block_size;
  request.length = data.size();
  request.data = data.data();
  RETURN_IF_ERROR(Execute(what, SteadyDeadline(timeout_), [&](Task& task) {
    BuildCommand(request, facts_, static_cast<uint32_t>(data.size()), task);
  }));
  // A good status for fewer bytes would leave old memory in a read's data.
  if (answer_.transferred == data.size()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInternal, what,
                   absl::StrFormat("%d bytes of %d were transferred", answer_.transferred, data.size()));
}

absl::Status BlockSession::Execute(const char* what, const SteadyDeadline& deadline, const Build& build) {
  for (int attentions = 0; attentions < kMostUnitAttentions; ++attentions) {
    RETURN_IF_ERROR(ExecuteOnce(what, deadline, build));
    if (!IsUnitAttention(answer_)) return ResultOfAnswer(what);
  }
  return MakeError(absl::StatusCode::kInternal, what, "the LUN answers with unit attentions only");
}

absl::Status BlockSession::ExecuteOnce(const char* what, const SteadyDeadline& deadline, const Build& build) {
  if (!socket_.is_open()) return MakeError(absl::StatusCode::kUnavailable, what, "the session is over");
  Task* task = nullptr;  // none while the target's window is closed
  RETURN_IF_ERROR(MoveBytesUntil(what, deadline, [&] { return (task = session_.NewTask()) != nullptr; }));
  build(*task);
  task->owner = nullptr;
  answered_ = false;
  session_.StartTask(task);
  return MoveBytesUntil(what, deadline, [this] { return answered_; });
}

absl::Status BlockSession::ResultOfAnswer(const char* what) const {
  if (IsSuccess(answer_)) return absl::OkStatus();
  if (answer_.response == 0 && answer_.status == kReservationConflict) {
    return MakeError(absl::StatusCode::kFailedPrecondition, what,
                     "another initiator's reservation forbids it");
  }
  return MakeError(absl::StatusCode::kInternal, what,
                   absl::StrFormat("response %02x, status %02x, sense %x/%02x/%02x", answer_.response,
                                   answer_.status, answer_.sense_key, answer_.asc, answer_.ascq));
}

// The condition comes before every failure: what the target has answered before the end holds. Sending may
// make it true too, by ending a command that was answered early.
absl::Status BlockSession::MoveBytesUntil(const char* what, const SteadyDeadline& deadline,
                                          const std::function<bool()>& done) {
  while (true) {
    const int error = socket_.SendAll();
    if (done()) return absl::OkStatus();
    if (session_.broken()) return EndBroken(what);
    if (error != 0) return EndSession(absl::StatusCode::kUnavailable, what, std::strerror(error));
    const short events = socket_.wants_write() ? POLLIN | POLLOUT : POLLIN;
    RETURN_IF_ERROR(AwaitSocket(what, events, deadline));
    const LunConnection::Received received = socket_.ReceiveAll();
    if (received.error != 0 && !done() && !session_.broken())
      return EndSession(absl::StatusCode::kUnavailable, what, received.failure());
  }
}

// Looks at the time first: a target that always sends something cannot hold the caller.
absl::Status BlockSession::AwaitSocket(const char* what, short events, const SteadyDeadline& deadline) {
  if (deadline.IsOver()) {
    return EndSession(absl::StatusCode::kDeadlineExceeded, what,
                      absl::StrCat("no answer within ", absl::FormatDuration(timeout_)).c_str());
  }
  pollfd socket{.fd = socket_.fd(), .events = events, .revents = 0};
  const absl::Duration left = std::min(absl::Ceil(deadline.left(), absl::Milliseconds(1)), kLongestWait);
  if (::poll(&socket, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) >= 0 || errno == EINTR)
    return absl::OkStatus();
  return EndSession(absl::StatusCode::kUnavailable, what, std::strerror(errno));
}

absl::Status BlockSession::EndBroken(const char* what) {
  return EndSession(session_.refused() ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable,
                    what, session_.failure());
}

absl::Status BlockSession::EndSession(absl::StatusCode code, const char* what, const char* why) {
  socket_.Close();
  return MakeError(code, what, why);
}

absl::Status BlockSession::MakeError(absl::StatusCode code, const char* what, const std::string& why) const {
  return absl::Status(code, absl::StrFormat("target %s at %s: %s: %s", connection_.target.value(),
                                            connection_.portal, what, why));
}

void BlockSession::OnTaskDone(Task& task) {
  answer_ = task;
  answered_ = true;
}

void BlockSession::OnLogoutWanted(std::chrono::seconds) {
  session_.BreakOff("the target wants the session to end");
}

void BlockSession::OnLostWrite() { session_.BreakOff("a write that the target had acknowledged has failed"); }

}  // namespace lunkeeper::iscsi
