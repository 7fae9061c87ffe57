#include "devices/datapath/isolated.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace lunkeeper {
namespace {

// Children that had not ended when their caller went away.
struct Late {
  absl::Mutex mutex;
  std::vector<pid_t> children ABSL_GUARDED_BY(mutex);
};
Late& LateOnes() {
  static auto* late = new Late;
  return *late;
}

// In the child: leaves only standard error and the three descriptors, at fixed places.
void KeepOnly(int report, int given, int lent) {
  const int fds[3] = {report, given, lent};
  int high[3];
  for (int i = 0; i < 3; ++i) high[i] = fds[i] < 0 ? -1 : ::fcntl(fds[i], F_DUPFD, 1000 + i);
  for (int i = 0; i < 3; ++i) {
    ::close(3 + i);
    if (high[i] >= 0) ::dup2(high[i], 3 + i);
  }
  ::syscall(SYS_close_range, 6U, ~0U, 0U);
}

void SendResult(int socket, const IsolatedResult& result) {
  iovec part = {const_cast<IsolatedResult*>(&result), sizeof(result)};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (result.fd >= 0) {
    header.msg_control = space;
    header.msg_controllen = sizeof(space);
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &result.fd, sizeof(int));
  }
  ::sendmsg(socket, &header, MSG_NOSIGNAL);
}

bool ReceiveResult(int socket, IsolatedResult* result, UniqueFd* fd) {
  iovec part = {result, sizeof(*result)};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = space;
  header.msg_controllen = sizeof(space);
  if (::recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != sizeof(*result)) return false;
  const cmsghdr* control = CMSG_FIRSTHDR(&header);
  if (control != nullptr && control->cmsg_type == SCM_RIGHTS) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(control), sizeof(int));
    fd->Reset(received);
  }
  return true;
}

bool WaitUntil(int socket, absl::Time deadline) {
  while (true) {
    const auto left = std::clamp<int64_t>(absl::ToInt64Milliseconds(deadline - absl::Now()), 0, 3'600'000);
    pollfd waiting = {.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(left));
    if (ready > 0) return true;
    if (ready == 0) return false;
  }
}

}  // namespace

absl::StatusOr<IsolatedResult> RunIsolated(UniqueFd given, int lent, absl::Time deadline,
                                           const IsolatedFunction& function, UniqueFd* fd) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return absl::ErrnoToStatus(errno, "making a socket pair");
  }
  UniqueFd ours(pair[0]), theirs(pair[1]);
  const pid_t child = ::fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "starting a child process");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    KeepOnly(theirs.get(), given.get(), lent);
    IsolatedResult result;
    function(given ? 4 : -1, lent < 0 ? -1 : 5, &result);
    SendResult(3, result);
    ::_exit(0);
  }
  theirs.Reset();
  given.Reset();
  if (!WaitUntil(ours.get(), deadline)) {
    ::kill(child, SIGKILL);
    absl::MutexLock lock(&LateOnes().mutex);
    LateOnes().children.push_back(child);
    return absl::DeadlineExceededError("the data path does not answer");
  }
  IsolatedResult result;
  UniqueFd passed;
  const bool received = ReceiveResult(ours.get(), &result, &passed);
  if (fd != nullptr) *fd = std::move(passed);
  ::waitpid(child, nullptr, 0);
  if (!received) return absl::UnavailableError("the child process died");
  return result;
}

void ReapIsolated() {
  absl::MutexLock lock(&LateOnes().mutex);
  std::erase_if(LateOnes().children, [](pid_t child) { return ::waitpid(child, nullptr, WNOHANG) != 0; });
}

}  // namespace lunkeeper
