// libiscsi is driven through its asynchronous calls, one at a time, by AwaitAnswer: a poll on its socket
// until the callback has come or the deadline has passed. Its own synchronous calls have no deadline.
// libiscsi keeps a pointer to the Answer of a call until it has called back, so a call that is given up
// destroys the whole context while its Answer is still alive; this is also what ends the session for good.

#include "devices/libiscsi/testing/libiscsi_session.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <array>

extern "C" {
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
}

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Operation codes (SPC-4, SBC-3).
constexpr uint8_t kTestUnitReady = 0x00, kInquiry = 0x12, kRead16 = 0x88, kWrite16 = 0x8a,
                  kServiceActionIn16 = 0x9e;
constexpr uint8_t kReadCapacity16Action = 0x10;
constexpr uint8_t kSerialPage = 0x80;
// A LUN has at most a few of them waiting: power on, parameters changed, capacity changed, reservations gone.
constexpr int kMaxUnitAttentions = 8;
// RFC 7143, 11.13.5: class 2 of a login's status is the initiator's error, and trying again does not help.
constexpr int kInitiatorErrors = 0x0200, kTargetErrors = 0x0300;

using TaskPtr = std::unique_ptr<scsi_task, decltype(&scsi_free_scsi_task)>;

// libiscsi tells the login's status only in its text: "… Target not found(515)". The number is the
// protocol's, so this is the one place that reads a text.
int LoginStatus(const std::string& error) {
  const size_t open = error.rfind('(');
  return open == std::string::npos ? 0 : std::atoi(error.c_str() + open + 1);
}

std::string TrimmedText(std::span<const char> text) {
  return std::string(absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
}

}  // namespace

struct LibiscsiSession::Answer {
  bool done = false;
  int status = SCSI_STATUS_ERROR;

  static void OnAnswer(iscsi_context*, int status, void*, void* answer) {
    *static_cast<Answer*>(answer) = {true, status};
  }
};

void LibiscsiSession::ContextDeleter::operator()(iscsi_context* context) const {
  iscsi_destroy_context(context);
}

LibiscsiSession::LibiscsiSession(const Connection& connection, absl::Duration timeout)
    : connection_(connection), timeout_(timeout) {}

LibiscsiSession::~LibiscsiSession() = default;

absl::StatusOr<std::unique_ptr<LibiscsiSession>> LibiscsiSession::Login(const Connection& connection,
                                                                        absl::Duration timeout) {
  // libiscsi writes without MSG_NOSIGNAL, and a target that closes must not end this process.
  ::signal(SIGPIPE, SIG_IGN);
  std::unique_ptr<LibiscsiSession> session(new LibiscsiSession(connection, timeout));
  RETURN_IF_ERROR(session->OpenConnection(absl::Now() + timeout));
  RETURN_IF_ERROR(session->DrainUnitAttentions());
  RETURN_IF_ERROR(session->ReadCapacity().status());
  return session;
}

absl::Status LibiscsiSession::OpenConnection(absl::Time deadline) {
  context_.reset(iscsi_create_context(connection_.initiator.value().c_str()));
  if (!context_) return MakeError(absl::StatusCode::kResourceExhausted, "login", "libiscsi made no context");
  iscsi_context* const context = context_.get();
  // Without this libiscsi logs in again by itself and repeats what was in flight.
  iscsi_set_noautoreconnect(context, 1);
  iscsi_set_session_type(context, ISCSI_SESSION_NORMAL);
  iscsi_set_header_digest(context, ISCSI_HEADER_DIGEST_NONE);
  iscsi_set_targetname(context, connection_.target.value().c_str());
  if (!connection_.chap.user.empty()) {
    iscsi_set_initiator_username_pwd(context, connection_.chap.user.c_str(), connection_.chap.secret.c_str());
  }
  if (!connection_.target_chap.user.empty()) {
    iscsi_set_target_username_pwd(context, connection_.target_chap.user.c_str(),
                                  connection_.target_chap.secret.c_str());
  }

  Answer connected;
  if (iscsi_connect_async(context, connection_.portal.c_str(), Answer::OnAnswer, &connected) != 0) {
    return MakeError(absl::StatusCode::kUnavailable, "connect", iscsi_get_error(context));
  }
  RETURN_IF_ERROR(AwaitAnswer("connect", connected, deadline));
  if (connected.status != SCSI_STATUS_GOOD) {
    return MakeError(absl::StatusCode::kUnavailable, "connect", iscsi_get_error(context));
  }
  return SendLogin(deadline);
}

absl::Status LibiscsiSession::SendLogin(absl::Time deadline) {
  iscsi_context* const context = context_.get();
  Answer logged_in;
  if (iscsi_login_async(context, Answer::OnAnswer, &logged_in) != 0) {
    return MakeError(absl::StatusCode::kInternal, "login", iscsi_get_error(context));
  }
  RETURN_IF_ERROR(AwaitAnswer("login", logged_in, deadline));
  if (logged_in.status == SCSI_STATUS_GOOD) return absl::OkStatus();
  const std::string error = iscsi_get_error(context);
  const int status = LoginStatus(error);
  // A class 2 status is final for this login; anything else may be better in a moment.
  const bool refused = status >= kInitiatorErrors && status < kTargetErrors;
  return MakeError(refused ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable, "login",
                   error);
}

// After a login the LUN answers the first commands with unit attentions ("power on", "reservations gone").
// They are read here, by a command without consequences, so that no caller's command meets them.
absl::Status LibiscsiSession::DrainUnitAttentions() {
  static constexpr std::array<uint8_t, 6> kCdb = {kTestUnitReady};
  return Execute({.what = "test unit ready", .cdb = kCdb}).status();
}

absl::StatusOr<LunIdentity> LibiscsiSession::ReadIdentity() {
  std::array<char, 255> data = {};
  std::array<uint8_t, 6> cdb = {kInquiry, 0, 0, 0, data.size(), 0};
  ASSIGN_OR_RETURN(size_t standard, Execute({.what = "inquiry", .cdb = cdb, .in = data}));
  if (standard < 36) return MakeError(absl::StatusCode::kInternal, "inquiry", "the answer is too short");
  LunIdentity identity;
  identity.vendor = TrimmedText(std::span(data).subspan(8, 8));
  identity.product = TrimmedText(std::span(data).subspan(16, 16));

  cdb[1] = 1;  // EVPD: a page of vital product data instead of the standard answer
  cdb[2] = kSerialPage;
  ASSIGN_OR_RETURN(const size_t page, Execute({.what = "inquiry of the serial", .cdb = cdb, .in = data}));
  // The page says how long the serial is; what came may be shorter.
  const size_t length = page < 4 ? 0 : std::min<size_t>(static_cast<uint8_t>(data[3]), page - 4);
  identity.serial = TrimmedText(std::span(data).subspan(4, length));
  return identity;
}

absl::StatusOr<LunCapacity> LibiscsiSession::ReadCapacity() {
  std::array<char, 32> data = {};
  const std::array<uint8_t, 16> cdb = {
      kServiceActionIn16, kReadCapacity16Action, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, data.size()};
  ASSIGN_OR_RETURN(const size_t got, Execute({.what = "read capacity", .cdb = cdb, .in = data}));
  const auto* bytes = reinterpret_cast<const unsigned char*>(data.data());
  // The answer gives the last block, not how many there are.
  const LunCapacity capacity{scsi_get_uint64(bytes) + 1, scsi_get_uint32(bytes + 8)};
  if (got < 12 || capacity.block_bytes == 0) {
    return MakeError(absl::StatusCode::kInternal, "read capacity", "the answer makes no sense");
  }
  block_bytes_ = capacity.block_bytes;  // what reads and writes are measured by from now on
  return capacity;
}

absl::StatusOr<std::vector<uint8_t>> LibiscsiSession::TransferCdb(const char* what, uint8_t operation,
                                                                  uint64_t lba, size_t bytes) {
  if (bytes == 0 || bytes % block_bytes_ != 0 || bytes > kMaxTransferBytes) {
    return MakeError(absl::StatusCode::kInvalidArgument, what,
                     absl::StrFormat("%d bytes are not whole blocks of %d, or more than %d at once", bytes,
                                     block_bytes_, kMaxTransferBytes));
  }
  std::vector<uint8_t> cdb(16);
  cdb[0] = operation;
  scsi_set_uint64(&cdb[2], lba);
  scsi_set_uint32(&cdb[10], static_cast<uint32_t>(bytes / block_bytes_));
  return cdb;
}

absl::Status LibiscsiSession::ReadBlocks(uint64_t lba, std::span<char> data) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> cdb, TransferCdb("read", kRead16, lba, data.size()));
  ASSIGN_OR_RETURN(const size_t got, Execute({.what = "read", .cdb = cdb, .in = data}));
  // A good status with fewer bytes would leave old memory in `data`.
  if (got == data.size()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInternal, "read",
                   absl::StrFormat("%d bytes of %d came", got, data.size()));
}

absl::Status LibiscsiSession::WriteBlocks(uint64_t lba, std::span<const char> data) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> cdb, TransferCdb("write", kWrite16, lba, data.size()));
  return Execute({.what = "write", .cdb = cdb, .out = data}).status();
}

absl::StatusOr<size_t> LibiscsiSession::Execute(const Command& command) {
  const absl::Time deadline = absl::Now() + timeout_;
  for (int attentions = 0; attentions < kMaxUnitAttentions; ++attentions) {
    bool unit_attention = false;
    auto got = ExecuteOnce(command, deadline, &unit_attention);
    if (!unit_attention) return got;
  }
  return MakeError(absl::StatusCode::kInternal, command.what, "the LUN answers with unit attentions only");
}

absl::StatusOr<size_t> LibiscsiSession::ExecuteOnce(const Command& command, absl::Time deadline,
                                                    bool* unit_attention) {
  if (!context_) return MakeError(absl::StatusCode::kUnavailable, command.what, "the session is over");
  const bool writes = !command.out.empty();
  const size_t length = writes ? command.out.size() : command.in.size();
  // libiscsi takes its input through pointers to non-const, and leaves it as it is.
  TaskPtr task(
      scsi_create_task(static_cast<int>(command.cdb.size()), const_cast<unsigned char*>(command.cdb.data()),
                       writes ? SCSI_XFER_WRITE : (length > 0 ? SCSI_XFER_READ : SCSI_XFER_NONE),
                       static_cast<int>(length)),
      scsi_free_scsi_task);
  iscsi_data out{command.out.size(), reinterpret_cast<unsigned char*>(const_cast<char*>(command.out.data()))};
  Answer answer;
  if (!task || iscsi_scsi_command_async(context_.get(), static_cast<int>(connection_.lun), task.get(),
                                        Answer::OnAnswer, writes ? &out : nullptr, &answer) != 0) {
    context_.reset();
    return MakeError(absl::StatusCode::kUnavailable, command.what, "libiscsi could not send it");
  }
  RETURN_IF_ERROR(AwaitAnswer(command.what, answer, deadline));
  switch (answer.status) {
    case SCSI_STATUS_GOOD: {
      const size_t got = std::min<size_t>(std::max(task->datain.size, 0), command.in.size());
      if (got > 0) std::copy_n(task->datain.data, got, command.in.data());
      return got;
    }
    case SCSI_STATUS_CHECK_CONDITION:
      // The command was not carried out, so it may be sent again: Execute does.
      *unit_attention = task->sense.key == SCSI_SENSE_UNIT_ATTENTION;
      return MakeError(absl::StatusCode::kInternal, command.what,
                       absl::StrFormat("%s, %s", scsi_sense_key_str(task->sense.key),
                                       scsi_sense_ascq_str(task->sense.ascq)));
    case SCSI_STATUS_RESERVATION_CONFLICT:
      return MakeError(absl::StatusCode::kFailedPrecondition, command.what,
                       "another initiator's reservation forbids it");
    case SCSI_STATUS_CANCELLED:
    case SCSI_STATUS_ERROR:
      // Whether the LUN has carried it out is not known, so it is not sent again.
      context_.reset();
      return MakeError(absl::StatusCode::kUnavailable, command.what, "the connection was lost");
    default:
      return MakeError(absl::StatusCode::kInternal, command.what,
                       absl::StrCat("SCSI status ", answer.status));
  }
}

absl::Status LibiscsiSession::AwaitAnswer(const char* what, Answer& answer, absl::Time deadline) {
  absl::Status status;
  while (!answer.done && status.ok()) {
    pollfd poll_fd{iscsi_get_fd(context_.get()), static_cast<short>(iscsi_which_events(context_.get())), 0};
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left <= 0) {
      status = MakeError(absl::StatusCode::kDeadlineExceeded, what,
                         absl::StrCat("no answer within ", absl::FormatDuration(timeout_)));
    } else if (poll(&poll_fd, 1, static_cast<int>(left) + 1) < 0 && errno != EINTR) {
      status = absl::ErrnoToStatus(errno, what);
    } else if (iscsi_service(context_.get(), poll_fd.revents) != 0 && !answer.done) {
      status = MakeError(absl::StatusCode::kUnavailable, what, iscsi_get_error(context_.get()));
    }
  }
  // Before `answer` goes: libiscsi calls back once more for whatever it still has.
  if (!status.ok()) context_.reset();
  return status;
}

absl::Status LibiscsiSession::MakeError(absl::StatusCode code, const char* what,
                                        const std::string& why) const {
  return absl::Status(code, absl::StrFormat("target %s at %s: %s: %s", connection_.target.value(),
                                            connection_.portal, what, why));
}

}  // namespace lunkeeper
