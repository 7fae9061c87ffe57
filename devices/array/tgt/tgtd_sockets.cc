#include "devices/array/tgt/tgtd_sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/host_port.h"

namespace lunkeeper {

std::vector<int> ListDescriptors(pid_t process) {
  std::vector<int> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator at(absl::StrCat("/proc/", process, "/fd"), error), end;
       !error && at != end; at.increment(error)) {
    int number = -1;
    if (absl::SimpleAtoi(at->path().filename().string(), &number)) numbers.push_back(number);
  }
  return numbers;
}

UniqueFd DuplicateDescriptor(const UniqueFd& process, int number) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), number, 0)));
}

absl::Status LookAtDescriptors(const UniqueFd& process, const std::vector<int>& numbers,
                               const std::function<void(int number, const UniqueFd& duplicate)>& look) {
  for (const int number : numbers) {
    const UniqueFd fd = DuplicateDescriptor(process, number);
    if (!fd && errno != EBADF && errno != ESRCH)  // not: closed, or ended
      return absl::PermissionDeniedError(
          absl::StrCat("pidfd_getfd: ", std::strerror(errno), "; it needs Linux 5.6 and CAP_SYS_PTRACE"));
    if (fd) look(number, fd);
  }
  return absl::OkStatus();
}

uint64_t CookieOf(const UniqueFd& socket) {
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

std::optional<uint16_t> OwnPortOf(const UniqueFd& fd) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    if (errno == ENOTSOCK) return std::nullopt;
    return 0;
  }
  if (own.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(own).sin_port);
  if (own.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(own).sin6_port);
  return 0;
}

std::set<uint16_t> PortsOf(const std::vector<std::string>& portals) {
  std::set<uint16_t> ports;
  for (const std::string& portal : portals)
    if (const auto parsed = ParseHostPort(portal)) ports.insert(parsed->port);
  return ports;
}

std::optional<tcp_info> ReadTcpInfo(const UniqueFd& socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  return info;
}

}  // namespace lunkeeper
