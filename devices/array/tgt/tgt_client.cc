// tgtd's management protocol, as tgtadm speaks it (tgt's usr/tgtadm.h): one request and one answer on a Unix
// socket, in the machine's own byte order and the C compiler's own layout.
//
// Every call makes a connection, sends a whole request and reads the answer. tgtd must never see a connection
// that ends without a whole request: when its peer closes early, it decides by the errno of an earlier,
// unrelated call whether to close its own end. With busy sessions that is nearly always EAGAIN; it then keeps
// the socket and spins on it at 100 % CPU until it exits. So even a call that only wants tgtd's process id
// sends a request (docs/tgt.md).
//
// tgtd handles requests on its only main thread, between network events. A slow answer therefore means that
// the daemon is busy or stuck, and all calls end at their timeout with UNAVAILABLE.
#include "devices/array/tgt/tgt_client.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

// The management protocol of tgt 1.0.85: a fixed header in host byte order, then text ended by a zero byte;
// the answer is an error number, a length that counts its own header, and text.
// Numbers of enum tgtadm_op and tgtadm_mode, in their order.
enum Operation : uint32_t { kNew, kDelete, kShow, kBind, kUnbind, kUpdate, kStatistics };
enum AccountDirection : uint32_t { kIncoming, kOutgoing };
enum Mode : uint32_t { kSystem, kTarget, kDevice, kPortal, kDriver, kSession, kConnection, kAccount };

struct WireRequest {
  uint32_t mode = 0;
  uint32_t operation = 0;
  char driver[64] = "iscsi";
  uint32_t length = 0;
  int32_t target = 0;
  uint64_t session = 0;
  uint64_t lun = 0;
  uint32_t connection = 0;
  uint32_t host = 0;
  uint32_t device_type = 0;
  uint32_t account_direction = 0;
  uint32_t pack = 0;
  uint32_t force = 0;
};
static_assert(sizeof(WireRequest) == 120);

struct WireResponse {
  uint32_t error = 0;
  uint32_t length = 0;
};

// Far longer than any list that tgtd has to give.
constexpr uint32_t kLargestAnswer = 64u << 20;

// What tgtd's error numbers (enum tgtadm_errno, counted from 0) mean. The codes are by what the caller can
// do: retry later, take "gone" or "there" for success, or wait for sessions and commands to end.
struct TgtdError {
  absl::StatusCode code;
  const char* meaning;
};
using Code = absl::StatusCode;
constexpr TgtdError kTgtdErrors[] = {
    {Code::kOk, "no error"},
    {Code::kInternal, "an error that it does not name"},
    {Code::kResourceExhausted, "it has no memory, or no thread, left"},
    {Code::kInternal, "it has no iSCSI"},
    {Code::kNotFound, "there is no such target"},
    {Code::kNotFound, "there is no such LUN"},
    {Code::kNotFound, "there is no such session"},
    {Code::kNotFound, "there is no such connection"},
    {Code::kNotFound, "there is no such binding"},
    {Code::kAlreadyExists, "the target exists"},
    {Code::kAlreadyExists, "the binding exists"},
    {Code::kAlreadyExists, "the LUN exists"},
    {Code::kAlreadyExists, "the address is let in already"},
    {Code::kNotFound, "the address was not let in"},
    {Code::kAlreadyExists, "the account exists"},
    {Code::kNotFound, "there is no such account"},
    {Code::kInternal, "too many accounts"},
    {Code::kInternal,
     "it refuses the request; of a LUN: it could not open the file, for the reason that its "
     "own lines in this log give"},
    {Code::kAlreadyExists, "the outgoing account exists"},
    {Code::kFailedPrecondition, "the target has sessions"},
    {Code::kFailedPrecondition, "the LUN has commands under way"},
    {Code::kFailedPrecondition, "iSCSI is in use"},
    {Code::kInternal, "it does not know the operation"},
    {Code::kInternal, "it does not know the parameter"},
    {Code::kFailedPrecondition, "an initiator forbids the removal"},
};

TgtdError MeaningOf(uint32_t error) { return kTgtdErrors[error < std::size(kTgtdErrors) ? error : 1]; }

absl::Status Unavailable(const std::string& doing, const char* what, int error) {
  return absl::UnavailableError(absl::StrCat(doing, ": tgtd: ", what, ": ", std::strerror(error)));
}

absl::StatusOr<UniqueFd> ConnectTo(const std::string& doing, const std::string& path,
                                   absl::Duration timeout) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return Unavailable(doing, "socket", errno);
  const timeval limit = absl::ToTimeval(timeout);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return Unavailable(doing, "socket path", ENAMETOOLONG);
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Unavailable(doing, path.c_str(), errno);
  }
  return fd;
}

absl::StatusOr<pid_t> ListenerOf(const std::string& doing, int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return Unavailable(doing, "SO_PEERCRED", errno);
  return peer.pid;
}

absl::Status SendBytes(const std::string& doing, int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return Unavailable(doing, "send", errno);
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return absl::OkStatus();
}

absl::Status ReceiveBytes(const std::string& doing, int fd, char* data, size_t size,
                          SteadyDeadline deadline) {
  while (size > 0) {
    if (deadline.IsOver()) return Unavailable(doing, "receive", ETIMEDOUT);
    const ssize_t received = ::recv(fd, data, size, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) return Unavailable(doing, "receive", errno == EAGAIN ? ETIMEDOUT : errno);
    if (received == 0) return Unavailable(doing, "receive", ECONNRESET);
    data += received;
    size -= static_cast<size_t>(received);
  }
  return absl::OkStatus();
}

}  // namespace

struct TgtClient::Request : WireRequest {};

TgtClient::TgtClient(int control_port, absl::Duration timeout)
    : path_(absl::StrCat("/var/run/tgtd/socket.", control_port)), timeout_(timeout) {}

absl::StatusOr<pid_t> TgtClient::FindProcess() const {
  const SteadyDeadline deadline(timeout_);
  ASSIGN_OR_RETURN(const UniqueFd fd, ConnectTo("find tgtd", path_, timeout_));
  ASSIGN_OR_RETURN(const pid_t process, ListenerOf("find tgtd", fd.get()));
  SendWholeRequest(fd.get(), deadline);
  return process;
}

// Only so that the connection carries a whole request, see the top of this file. A tgtd that hangs has a
// process id as well, so the answer is not needed.
void TgtClient::SendWholeRequest(int fd, SteadyDeadline deadline) {
  Exchange("find tgtd", fd, {{.mode = kPortal, .operation = kShow}}, "", deadline).status().IgnoreError();
}

absl::Status TgtClient::CheckListener(const std::string& doing, int fd, SteadyDeadline deadline) const {
  const pid_t expected = process_;
  if (expected == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const pid_t process, ListenerOf(doing, fd));
  if (process == expected) return absl::OkStatus();
  SendWholeRequest(fd, deadline);
  return absl::UnavailableError(absl::StrCat(doing, ": tgtd, process ", expected, ": another one, process ",
                                             process, ", has its control port, ", path_));
}

absl::Status TgtClient::NewTarget(int32_t target, const Iqn& name) const {
  return RunCommand("make target", {{.mode = kTarget, .operation = kNew, .target = target}},
                    absl::StrCat("targetname=", name.value()));
}

absl::Status TgtClient::SetTargetParameter(int32_t target, const char* name, const char* value) const {
  return RunCommand("set target parameter", {{.mode = kTarget, .operation = kUpdate, .target = target}},
                    absl::StrCat(name, "=", value));
}

absl::Status TgtClient::DeleteTarget(int32_t target) const {
  return RunCommand("delete target", {{.mode = kTarget, .operation = kDelete, .target = target}});
}

absl::StatusOr<std::vector<TgtTarget>> TgtClient::ListTargets() const {
  ASSIGN_OR_RETURN(const std::string text,
                   CallTgtd("list targets", {{.mode = kTarget, .operation = kShow, .target = -1}}));
  return ParseTgtTargets(text);
}

absl::Status TgtClient::NewLun(int32_t target, const TgtLun& lun) const {
  const LunBacking& backing = lun.backing;
  return RunCommand(
      "make LUN", {{.mode = kDevice, .operation = kNew, .target = target, .lun = 1}},
      absl::StrCat("path=", backing.path, ",bstype=", backing.type, lun.sync ? ",bsoflags=sync" : "",
                   backing.options.empty() ? "" : ",bsopts=", backing.options));
}

absl::Status TgtClient::DeleteLun(int32_t target) const {
  return RunCommand("delete LUN", {{.mode = kDevice, .operation = kDelete, .target = target, .lun = 1}});
}

absl::Status TgtClient::UpdateLun(int32_t target, const std::string& parameters) const {
  return RunCommand("update LUN", {{.mode = kDevice, .operation = kUpdate, .target = target, .lun = 1}},
                    parameters);
}

absl::Status TgtClient::NewAccount(const ChapCredentials& account) const {
  return RunCommand("make account", {{.mode = kAccount, .operation = kNew}},
                    absl::StrCat("user=", account.user, ",password=", account.secret));
}

absl::Status TgtClient::BindAccount(int32_t target, const std::string& user) const {
  return RunCommand("bind account", {{.mode = kAccount, .operation = kBind, .target = target}},
                    absl::StrCat("user=", user));
}

absl::Status TgtClient::BindTargetAccount(int32_t target, const std::string& user) const {
  return RunCommand(
      "bind target's account",
      {{.mode = kAccount, .operation = kBind, .target = target, .account_direction = kOutgoing}},
      absl::StrCat("user=", user));
}

absl::StatusOr<std::vector<std::string>> TgtClient::ListAccounts() const {
  ASSIGN_OR_RETURN(const std::string text,
                   CallTgtd("list accounts", {{.mode = kAccount, .operation = kShow}}));
  return ParseTgtAccounts(text);
}

absl::Status TgtClient::DeleteAccount(const std::string& user) const {
  return RunCommand("delete account", {{.mode = kAccount, .operation = kDelete}},
                    absl::StrCat("user=", user));
}

absl::Status TgtClient::AllowInitiator(int32_t target, const Iqn& initiator) const {
  return RunCommand("open target", {{.mode = kTarget, .operation = kBind, .target = target}},
                    absl::StrCat("initiator-name=", initiator.value()));
}

absl::Status TgtClient::DisallowInitiator(int32_t target, const Iqn& initiator) const {
  return RunCommand("close target", {{.mode = kTarget, .operation = kUnbind, .target = target}},
                    absl::StrCat("initiator-name=", initiator.value()));
}

absl::StatusOr<std::vector<TgtConnection>> TgtClient::ListConnections(int32_t target) const {
  ASSIGN_OR_RETURN(
      const std::string text,
      CallTgtd("list connections", {{.mode = kConnection, .operation = kShow, .target = target}}));
  return ParseTgtConnections(text);
}

absl::Status TgtClient::DeleteConnection(int32_t target, const TgtConnection& connection) const {
  return RunCommand("delete connection", {{.mode = kConnection,
                                           .operation = kDelete,
                                           .target = target,
                                           .session = connection.session,
                                           .connection = connection.connection}});
}

absl::StatusOr<std::vector<TgtStatistics>> TgtClient::ReadStatistics(absl::Duration most) const {
  ASSIGN_OR_RETURN(const std::string text,
                   CallTgtd("read statistics", {{.mode = kSystem, .operation = kStatistics}}, "", most));
  return ParseTgtStatistics(text);
}

absl::StatusOr<std::vector<std::string>> TgtClient::ListPortals() const {
  ASSIGN_OR_RETURN(const std::string text, CallTgtd("list portals", {{.mode = kPortal, .operation = kShow}}));
  return ParseTgtPortals(text);
}

absl::Status TgtClient::OpenPortal(const std::string& portal) const {
  return RunCommand("open portal", {{.mode = kPortal, .operation = kNew}}, absl::StrCat("portal=", portal));
}

absl::Status TgtClient::ClosePortal(const std::string& portal) const {
  return RunCommand("close portal", {{.mode = kPortal, .operation = kDelete}},
                    absl::StrCat("portal=", portal));
}

absl::StatusOr<std::string> TgtClient::CallTgtd(const std::string& doing, Request request,
                                                const std::string& text, absl::Duration most) const {
  const absl::Duration timeout = std::min(timeout_, most);
  const SteadyDeadline deadline(timeout);
  ASSIGN_OR_RETURN(const UniqueFd fd, ConnectTo(doing, path_, timeout));
  RETURN_IF_ERROR(CheckListener(doing, fd.get(), deadline));
  return Exchange(doing, fd.get(), request, text, deadline);
}

absl::StatusOr<std::string> TgtClient::Exchange(const std::string& doing, int fd, Request request,
                                                const std::string& text, SteadyDeadline deadline) {
  // `length` counts header and text, and the text's zero byte.
  const size_t text_size = text.empty() ? 0 : text.size() + 1;
  request.length = static_cast<uint32_t>(sizeof(request) + text_size);
  std::string message(reinterpret_cast<const char*>(&request), sizeof(request));
  message.append(text.c_str(), text_size);
  RETURN_IF_ERROR(SendBytes(doing, fd, message.data(), message.size()));
  WireResponse response;
  RETURN_IF_ERROR(ReceiveBytes(doing, fd, reinterpret_cast<char*>(&response), sizeof(response), deadline));
  if (response.error != 0) {
    const TgtdError error = MeaningOf(response.error);
    return absl::Status(error.code, absl::StrCat(doing, " ", request.target, ": tgtd: ", error.meaning, " (",
                                                 response.error, ")"));
  }
  if (response.length < sizeof(response) || response.length > kLargestAnswer) {
    return absl::InternalError(absl::StrCat(doing, ": tgtd answers with ", response.length, " bytes"));
  }
  std::string answer(response.length - sizeof(response), '\0');
  RETURN_IF_ERROR(ReceiveBytes(doing, fd, answer.data(), answer.size(), deadline));
  return answer.substr(0, answer.find('\0'));
}

absl::Status TgtClient::RunCommand(const std::string& doing, Request request, const std::string& text) const {
  return CallTgtd(doing, request, text).status();
}

}  // namespace lunkeeper
