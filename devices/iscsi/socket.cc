// Linux's sockets, with the options that were worth measuring (docs/performance.md). Every call returns at
// once, also where it is interrupted: the loop must not wait here, since other volumes share it.

#include "devices/iscsi/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "base/host_port.h"

namespace lunkeeper::iscsi {
namespace {

// BBR, the default of some systems, starts a timer for every segment, so that it leaves at the right moment:
// that is a quarter of the cost of a large write, and of no use next to the storage. Anything else that was
// chosen stays.
void AvoidPacing(int fd) {
  char name[16] = {};
  socklen_t size = sizeof name;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) return;
  constexpr std::string_view kPaced = "bbr", kInstead = "cubic";
  if (std::string_view(name, size).substr(0, kPaced.size()) != kPaced) return;
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kInstead.data(), kInstead.size());
}

}  // namespace

std::optional<Address> ParseAddress(const std::string& text) {
  const auto where = ParseHostPort(text);
  if (!where || where->host.empty()) return std::nullopt;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(where->host.c_str(), std::to_string(where->port).c_str(), &hints, &found) != 0)
    return std::nullopt;
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

bool IsTargetAddress(const Address& address, std::string_view text) {
  text = text.substr(0, text.find(','));
  const bool v6 = text.starts_with('[');
  const size_t host_end = text.find(v6 ? ']' : ':');
  if (v6 && host_end == text.npos) return false;
  const std::string_view host = text.substr(v6, host_end == text.npos ? host_end : host_end - v6);
  std::string_view rest = host_end == text.npos ? "" : text.substr(host_end + v6);
  uint16_t port = 3260;
  if (!rest.empty()) {
    rest.remove_prefix(1);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), port);
    if (error != std::errc() || end != rest.data() + rest.size()) return false;
  }
  char name[INET6_ADDRSTRLEN] = {};
  if (host.size() >= sizeof name) return false;
  host.copy(name, host.size());
  if (v6) {
    const auto& own = reinterpret_cast<const sockaddr_in6&>(address.storage);
    in6_addr named;
    return own.sin6_family == AF_INET6 && own.sin6_port == htons(port) &&
           ::inet_pton(AF_INET6, name, &named) == 1 && std::memcmp(&named, &own.sin6_addr, sizeof named) == 0;
  }
  const auto& own = reinterpret_cast<const sockaddr_in&>(address.storage);
  in_addr named;
  return own.sin_family == AF_INET && own.sin_port == htons(port) &&
         ::inet_pton(AF_INET, name, &named) == 1 && named.s_addr == own.sin_addr.s_addr;
}

// Without delay (Nagle's algorithm): a command without data would wait for the answer to the one before it.
UniqueFd OpenSocket(const Address& address) {
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  AvoidPacing(fd.get());
  const auto* to = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::connect(fd.get(), to, address.size) == 0 || errno == EINPROGRESS) return fd;
  const int error = errno;
  fd.Reset();
  errno = error;
  return fd;
}

int ConnectResult(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// SO_RCVLOWAT, see socket(7) and tcp(7): epoll reports the socket once so much is there.
void ReadableFrom(int fd, size_t bytes) {
  const int count = static_cast<int>(bytes);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &count, sizeof count);
}

size_t AvailableBytes(int fd) {
  int count = 0;
  return ::ioctl(fd, FIONREAD, &count) == 0 ? static_cast<size_t>(count) : 0;
}

ssize_t ReceiveBytes(int fd, iovec* space, int count) {
  msghdr message{};
  message.msg_iov = space;
  message.msg_iovlen = static_cast<size_t>(count);
  ssize_t got;
  do {
    got = ::recvmsg(fd, &message, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got > 0) return got;
  if (got == 0) return -EPIPE;
  return errno == EAGAIN ? 0 : -errno;
}

ssize_t SendBytes(int fd, const iovec* pieces, int count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = static_cast<size_t>(count);
  ssize_t sent;
  do {
    sent = ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return sent;
  return errno == EAGAIN ? 0 : -errno;
}

}  // namespace lunkeeper::iscsi
