// The order in a call: make the pipe or socket pair, fork, close what was given away, wait for the child's
// end (a pidfd) while its output is drained, so that a child with much to say is not held up by a full pipe.
//
// At the deadline the child is killed and has kDyingTime to go. One that has not gone by then is inside a
// system call that no signal interrupts; it is kept in LeftBehind with its subject until waitpid has
// collected it. Should this process be killed meanwhile, PR_SET_PDEATHSIG kills the child as well, and init
// collects it.

#include "base/child.h"

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
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"

namespace lunkeeper {
namespace {

constexpr size_t kMostOutput = 4096;
constexpr absl::Duration kDyingTime = absl::Milliseconds(200);

// Children that were killed and have not died, by subject.
class LeftBehind {
 public:
  static LeftBehind& Instance() {
    static LeftBehind* const instance = new LeftBehind;  // never destroyed: threads may use it at exit
    return *instance;
  }

  void Add(const std::string& subject, pid_t pid) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    pids_.emplace(subject, pid);
  }

  // Collects all that have died since; whether one of `subject` has not.
  bool CollectAndCheck(const std::string& subject) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    std::erase_if(pids_, [](const auto& entry) { return ::waitpid(entry.second, nullptr, WNOHANG) != 0; });
    return pids_.contains(subject);
  }

 private:
  absl::Mutex mu_;
  std::multimap<std::string, pid_t> pids_ ABSL_GUARDED_BY(mu_);
};

struct Child {
  pid_t pid = -1;
  UniqueFd handle;  // a pidfd: readable when the child has ended
  UniqueFd output;  // not blocking
};

struct OutputEnds {
  UniqueFd ours, childs;
};

absl::StatusOr<OutputEnds> MakeOutput(const std::string& subject, ChildOutput kind) {
  int ends[2];
  const int made = kind == ChildOutput::kPipe ? ::pipe2(ends, O_CLOEXEC)
                                              : ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
  if (made != 0) return absl::ErrnoToStatus(errno, absl::StrCat(subject, ": no pipe"));
  OutputEnds output;
  output.ours.Reset(ends[0]);
  output.childs.Reset(ends[1]);
  ::fcntl(output.ours.get(), F_SETFL, O_NONBLOCK);
  return output;
}

// Never returns. Everything here is safe between fork and exec.
[[noreturn]] void BecomeChild(pid_t parent, int out, const std::function<int(int)>& work) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(ECANCELED);  // it died before prctl, which tells only of later deaths
  ::_exit(work(out));
}

absl::StatusOr<Child> StartChild(const std::string& subject, ChildOutput kind,
                                 const std::function<int(int)>& work) {
  ASSIGN_OR_RETURN(OutputEnds output, MakeOutput(subject, kind));
  Child child;
  child.output = std::move(output.ours);
  const pid_t parent = ::getpid();
  child.pid = ::fork();
  if (child.pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(subject, ": cannot start a process (errno ", errno, ")"));
  }
  if (child.pid == 0) BecomeChild(parent, output.childs.get(), work);
  ::setpgid(child.pid, child.pid);  // in both processes, so that a kill of the group never comes too early
  child.handle.Reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  return child;
}

// Receives from a socket, with a descriptor if one comes along; reads from a pipe. Returns as read(2) does.
ssize_t ReceiveOutput(int fd, char* buffer, size_t size, UniqueFd& passed) {
  iovec part = {buffer, size};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = space;
  header.msg_controllen = sizeof(space);
  const ssize_t got = ::recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == ENOTSOCK) return ::read(fd, buffer, size);
  if (got < 0) return got;
  const cmsghdr* control = CMSG_FIRSTHDR(&header);
  if (control != nullptr && control->cmsg_type == SCM_RIGHTS) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(control), sizeof(int));
    passed.Reset(received);
  }
  return got;
}

// Takes what is there now; false at the end of the output.
bool DrainOutput(int fd, ChildAnswer& answer) {
  char buffer[4096];
  for (;;) {
    const ssize_t got = ReceiveOutput(fd, buffer, sizeof buffer, answer.passed);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    answer.output.append(buffer, static_cast<size_t>(got));
    if (answer.output.size() > kMostOutput) answer.output.erase(0, answer.output.size() - kMostOutput);
  }
}

// Whether the child has ended by then. The end of its output says nothing: a grandchild may hold it open.
bool WaitForEnd(const Child& child, SteadyDeadline deadline, ChildAnswer& answer) {
  bool open = true;
  for (;;) {
    const int64_t left = absl::ToInt64Milliseconds(deadline.left());
    pollfd polled[2] = {{child.handle.get(), POLLIN, 0}, {open ? child.output.get() : -1, POLLIN, 0}};
    ::poll(polled, 2, static_cast<int>(std::clamp<int64_t>(left + 1, 0, 60'000)));
    if (polled[1].revents != 0) open = DrainOutput(child.output.get(), answer);
    if (polled[0].revents != 0) return true;
    if (deadline.IsOver()) return false;
  }
}

// Kills the child; whether it could then be waited for, and so has to be.
bool KillChild(const std::string& subject, const Child& child, ChildAnswer& answer) {
  ::kill(-child.pid, SIGKILL);
  if (WaitForEnd(child, SteadyDeadline(kDyingTime), answer)) return true;
  LeftBehind::Instance().Add(subject, child.pid);
  return false;
}

// The exit code of the child and its answer, or why there is none.
absl::StatusOr<ChildEnd> FinishChild(const std::string& subject, const Child& child, absl::Time deadline) {
  ChildEnd end;
  const bool in_time = WaitForEnd(child, SteadyDeadline(deadline), end.answer);
  if (!in_time && !KillChild(subject, child, end.answer)) {
    return absl::DeadlineExceededError(
        absl::StrCat(subject,
                     ": not done in time, and the kernel still waits for the device; see that its storage "
                     "answers, then try again"));
  }
  DrainOutput(child.output.get(), end.answer);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) return absl::DeadlineExceededError(absl::StrCat(subject, ": not done in time; try again"));
  if (WIFSIGNALED(status)) {
    return absl::InternalError(
        absl::StrCat(subject, ": killed by signal ", WTERMSIG(status), ": ", end.answer.output));
  }
  end.exit_code = WEXITSTATUS(status);
  return end;
}

// In the child: leaves the standard streams open, and those three; negative ones are none.
void CloseAllBut(int first, int second, int third) {
  int kept[3] = {first, second, third};
  std::sort(kept, kept + 3);
  unsigned from = STDERR_FILENO + 1;
  for (const int fd : kept) {
    if (fd < static_cast<int>(from)) continue;
    if (fd > static_cast<int>(from)) ::close_range(from, static_cast<unsigned>(fd) - 1, 0);
    from = static_cast<unsigned>(fd) + 1;
  }
  ::close_range(from, ~0U, 0);
}

}  // namespace

int SendWithDescriptor(int out, const void* data, size_t size, int fd) {
  iovec part = {const_cast<void*>(data), size};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = space;
    header.msg_controllen = sizeof(space);
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &fd, sizeof(int));
  }
  const ssize_t sent = ::sendmsg(out, &header, MSG_NOSIGNAL);
  if (sent < 0) return errno;
  return sent == static_cast<ssize_t>(size) ? 0 : EIO;
}

absl::StatusOr<ChildEnd> RunChild(ChildCall call, ChildOutput kind, const std::function<int(int)>& work) {
  if (LeftBehind::Instance().CollectAndCheck(call.subject) && call.refuse_repeats) {
    return absl::DeadlineExceededError(absl::StrCat(
        call.subject, ": an earlier try still waits for its device; see that its storage answers"));
  }
  ASSIGN_OR_RETURN(const Child child, StartChild(call.subject, kind, work));
  call.given.Reset();
  return FinishChild(call.subject, child, call.deadline);
}

absl::StatusOr<ChildAnswer> CallInChild(ChildCall call, const std::function<int(int)>& work) {
  const std::string subject = call.subject;
  const int lent = call.lent;
  const int given = call.given.get();
  const auto alone = [&work, lent, given](int out) {
    CloseAllBut(out, lent, given);
    return work(out);
  };
  ASSIGN_OR_RETURN(ChildEnd end, RunChild(std::move(call), ChildOutput::kSocket, alone));
  if (end.exit_code == 0) return std::move(end.answer);
  // An errno that absl has no code for is a failure of this program, not an unknown one.
  const absl::Status status = absl::ErrnoToStatus(end.exit_code, subject);
  return absl::IsUnknown(status) ? absl::InternalError(status.message()) : status;
}

bool IsLeftBehind(const std::string& subject) { return LeftBehind::Instance().CollectAndCheck(subject); }

void CollectLateChildren() { LeftBehind::Instance().CollectAndCheck(""); }

}  // namespace lunkeeper
