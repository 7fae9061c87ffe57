#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

constexpr size_t kMostOutput = 4096;
constexpr char kEnvironmentPath[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr const char* kSearchPath = kEnvironmentPath + 5;
constexpr absl::Duration kDyingTime = absl::Milliseconds(200);

// Children that were killed and have not died, by subject.
class LeftBehind {
 public:
  static LeftBehind& Instance() {
    static LeftBehind* const instance = new LeftBehind;
    return *instance;
  }

  void Add(const std::string& subject, pid_t pid) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    pids_.emplace(subject, pid);
  }

  // Collects all that have died since; whether one of `subject` has not.
  bool Has(const std::string& subject) ABSL_LOCKS_EXCLUDED(mu_) {
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

// Never returns. Everything here is safe between fork and exec.
[[noreturn]] void BeChild(pid_t parent, int out, const std::function<int(int)>& work) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(ECANCELED);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::_exit(work(out));
}

absl::StatusOr<Child> Start(const std::string& subject, const std::function<int(int)>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, absl::StrCat(subject, ": no pipe"));
  UniqueFd out(ends[1]);
  Child child;
  child.output.Reset(ends[0]);
  ::fcntl(child.output.get(), F_SETFL, O_NONBLOCK);
  const pid_t parent = ::getpid();
  child.pid = ::fork();
  if (child.pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(subject, ": cannot start a process (errno ", errno, ")"));
  }
  if (child.pid == 0) BeChild(parent, out.get(), work);
  ::setpgid(child.pid, child.pid);  // in both processes, so that a kill of the group never comes too early
  child.handle.Reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  return child;
}

// Takes what is in the pipe; false at its end.
bool Drain(int fd, std::string& output) {
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    output.append(buffer, static_cast<size_t>(got));
    if (output.size() > kMostOutput) output.erase(0, output.size() - kMostOutput);
  }
}

// Whether the child has ended by then.
bool WaitForEnd(const Child& child, absl::Time deadline, std::string& output) {
  bool open = true;
  for (;;) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd polled[2] = {{child.handle.get(), POLLIN, 0}, {open ? child.output.get() : -1, POLLIN, 0}};
    ::poll(polled, 2, static_cast<int>(std::clamp<int64_t>(left + 1, 0, 60'000)));
    if (polled[1].revents != 0) open = Drain(child.output.get(), output);
    if (polled[0].revents != 0) return true;
    if (absl::Now() >= deadline) return false;
  }
}

// The exit code of the child, or why there is none.
absl::StatusOr<int> Finish(const std::string& subject, Child child, absl::Time deadline,
                           std::string& output) {
  const bool in_time = WaitForEnd(child, deadline, output);
  if (!in_time) {
    ::kill(-child.pid, SIGKILL);
    if (!WaitForEnd(child, absl::Now() + kDyingTime, output)) {
      LeftBehind::Instance().Add(subject, child.pid);
      return absl::DeadlineExceededError(
          absl::StrCat(subject,
                       ": not done in time, and the kernel still waits for the device; see that its storage "
                       "answers, then try again"));
    }
  }
  Drain(child.output.get(), output);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) return absl::DeadlineExceededError(absl::StrCat(subject, ": not done in time; try again"));
  if (WIFSIGNALED(status)) {
    return absl::InternalError(absl::StrCat(subject, ": killed by signal ", WTERMSIG(status), ": ", output));
  }
  return WEXITSTATUS(status);
}

absl::StatusOr<int> Run(const std::string& subject, const std::function<int(int)>& work, absl::Time deadline,
                        std::string& output) {
  if (LeftBehind::Instance().Has(subject)) {
    return absl::DeadlineExceededError(
        absl::StrCat(subject, ": an earlier try still waits for its device; see that its storage answers"));
  }
  ASSIGN_OR_RETURN(Child child, Start(subject, work));
  return Finish(subject, std::move(child), deadline, output);
}

absl::StatusOr<std::string> Locate(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const std::string path = kSearchPath;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    std::string candidate = absl::StrCat(path.substr(at, end - at), "/", program);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    at = end + 1;
  }
  return absl::NotFoundError(absl::StrCat("the program ", program, " is not installed; looked in ", path));
}

// Leaves the standard streams open, and the two descriptors given, in order; negative ones are none.
void CloseAllBut(int first, int second) {
  unsigned from = STDERR_FILENO + 1;
  for (const int kept : {first, second}) {
    if (kept < static_cast<int>(from)) continue;
    if (kept > static_cast<int>(from)) ::close_range(from, static_cast<unsigned>(kept) - 1, 0);
    from = static_cast<unsigned>(kept) + 1;
  }
  ::close_range(from, ~0U, 0);
}

[[noreturn]] void Exec(const char* program, char* const* argv, int out) {
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::signal(SIGPIPE, SIG_DFL);
  char* const environment[] = {const_cast<char*>(kEnvironmentPath), const_cast<char*>("LC_ALL=C"), nullptr};
  ::execve(program, argv, environment);
  ::_exit(127);
}

}  // namespace

absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& argv, absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::string program, Locate(argv.at(0)));
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  CommandResult result;
  const auto exec = [&](int out) -> int { Exec(program.c_str(), arguments.data(), out); };
  ASSIGN_OR_RETURN(result.exit_code, Run(absl::StrJoin(argv, " "), exec, deadline, result.output));
  return result;
}

absl::StatusOr<std::string> CallInChild(const std::string& subject, const std::function<int(int out)>& work,
                                        absl::Time deadline, int keep) {
  std::string output;
  const auto alone = [&](int out) {
    CloseAllBut(std::min(out, keep), std::max(out, keep));
    return work(out);
  };
  ASSIGN_OR_RETURN(const int error, Run(subject, alone, deadline, output));
  if (error == 0) return output;
  const absl::Status status = absl::ErrnoToStatus(error, subject);
  return absl::IsUnknown(status) ? absl::InternalError(status.message()) : status;
}

}  // namespace lunkeeper
