#include "devices/array/tgt/tgtd_sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

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
    if (!fd && errno == EPERM)
      return absl::PermissionDeniedError("pidfd_getfd is not permitted; it needs CAP_SYS_PTRACE");
    if (fd) look(number, fd);
  }
  return absl::OkStatus();
}

uint64_t CookieOf(const UniqueFd& socket) {
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

std::optional<tcp_info> ReadTcpInfo(const UniqueFd& socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  return info;
}

}  // namespace lunkeeper
