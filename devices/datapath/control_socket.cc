// SOCK_SEQPACKET keeps the borders between messages, so that no length has to be sent and no half of a
// message can be read; descriptors come with the very message that they belong to (SCM_RIGHTS, unix(7)).
//
// Who may connect: the socket has mode 0600, and the supervisor also asks the kernel for the peer's user
// (SO_PEERCRED), since a directory may be mounted into a container under other rights.

#include "devices/datapath/control_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"

namespace lunkeeper {
namespace {

constexpr size_t kMaxDescriptors = 4;

struct DescriptorSpace {
  alignas(cmsghdr) char bytes[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
};

absl::StatusOr<sockaddr_un> SocketAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path \"", path, "\" is empty or longer than ",
                                                   sizeof(address.sun_path) - 1, " characters"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

absl::Status WaitReadable(int socket, SteadyDeadline deadline) {
  while (true) {
    const int64_t milliseconds = std::min<int64_t>(absl::ToInt64Milliseconds(deadline.left()) + 1, 3'600'000);
    pollfd waiting = {.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(milliseconds));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "waiting for a message");
    if (deadline.IsOver()) return absl::DeadlineExceededError("no answer in time");
  }
}

// Takes ownership of the descriptors that came along, wanted or not.
std::vector<UniqueFd> TakeDescriptors(msghdr* header) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(header); part != nullptr; part = CMSG_NXTHDR(header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectTo(const std::string& path, int flags) {
  ASSIGN_OR_RETURN(const sockaddr_un address, SocketAddress(path));
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!socket) return absl::ErrnoToStatus(errno, "making a socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::UnavailableError(absl::StrCat("nobody answers at ", path, " (", std::strerror(errno),
                                               "): is `lunkeeper datapath` running?"));
  }
  return socket;
}

absl::StatusOr<UniqueFd> ListenAt(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, SocketAddress(path));
  if (ConnectTo(path).ok())
    return absl::AlreadyExistsError(absl::StrCat("somebody listens at ", path, " already"));
  struct stat status = {};
  // Left by a supervisor that was killed. Anything that is no socket is left alone, and bind fails on it.
  if (::lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) ::unlink(path.c_str());
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return absl::ErrnoToStatus(errno, "making a socket");
  // Before bind, so that there is no moment in which others may connect.
  ::fchmod(socket.get(), 0600);
  const mode_t mask = ::umask(0177);
  const int bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  ::umask(mask);
  if (bound != 0) return absl::ErrnoToStatus(error, absl::StrCat("making the control socket ", path));
  if (::listen(socket.get(), 128) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("listening at ", path));
  return socket;
}

bool PeerIsRoot(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == 0;
}

absl::Status SendMessage(int socket, const google::protobuf::MessageLite& message,
                         const std::vector<int>& fds) {
  std::string bytes = message.SerializeAsString();
  if (bytes.size() > kMaxMessage)
    return absl::ResourceExhaustedError("message too large for the control socket");
  // A packet of no bytes looks like the end of the stream; every message has at least one byte more than its
  // own.
  bytes.push_back('\0');
  iovec part = {bytes.data(), bytes.size()};
  DescriptorSpace space = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = space.bytes;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(control), fds.data(), fds.size() * sizeof(int));
  }
  const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
  if (sent < 0) return absl::UnavailableError(absl::StrCat("sending a message: ", std::strerror(errno)));
  return absl::OkStatus();
}

absl::Status ReceiveMessage(int socket, absl::Time deadline, google::protobuf::MessageLite* message,
                            std::vector<UniqueFd>* fds, int flags) {
  RETURN_IF_ERROR(WaitReadable(socket, SteadyDeadline(deadline)));
  std::string bytes(kMaxMessage + 1, '\0');
  iovec part = {bytes.data(), bytes.size()};
  DescriptorSpace space = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = space.bytes;
  header.msg_controllen = sizeof(space.bytes);
  const ssize_t got = ::recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
  std::vector<UniqueFd> received = TakeDescriptors(&header);
  if (got < 0) return absl::UnavailableError(absl::StrCat("receiving a message: ", std::strerror(errno)));
  if (got == 0) return absl::UnavailableError("the other end is gone");
  if ((header.msg_flags & MSG_TRUNC) != 0 ||
      !message->ParseFromArray(bytes.data(), static_cast<int>(got) - 1)) {
    return absl::InvalidArgumentError("not a message of the control protocol");
  }
  if (fds == nullptr) return absl::OkStatus();
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    return absl::ResourceExhaustedError("no room for the descriptors that came with a message");
  }
  *fds = std::move(received);
  return absl::OkStatus();
}

}  // namespace lunkeeper
