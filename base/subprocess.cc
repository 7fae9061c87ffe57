#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/child.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"

namespace lunkeeper {
namespace {

// Not the caller's PATH: which mkfs runs must not depend on how the driver was started.
constexpr char kEnvironmentPath[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr const char* kSearchPath = kEnvironmentPath + 5;
constexpr off_t kTailBytes = 4096;

absl::StatusOr<std::string> LocateProgram(const std::string& program) {
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

// In the child, after fork: system calls only.
[[noreturn]] void ExecProgram(const char* program, char* const* argv, int out) {
  // Threads of this process may block signals; a program expects none to be blocked.
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
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

std::vector<char*> PointersTo(const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  for (const std::string& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The last 4 KiB of a file.
std::string ReadTail(int fd) {
  const off_t size = std::max<off_t>(::lseek(fd, 0, SEEK_END), 0);
  std::string tail;
  tail.resize(static_cast<size_t>(std::min(size, kTailBytes)));
  const ssize_t got = ::pread(fd, tail.data(), tail.size(), size - static_cast<off_t>(tail.size()));
  tail.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return tail;
}

bool EndedBy(int pidfd, SteadyDeadline deadline) {
  for (;;) {
    const int64_t left = absl::ToInt64Milliseconds(deadline.left());
    pollfd polled = {pidfd, POLLIN, 0};
    ::poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left + 1, 0, 60'000)));
    if (polled.revents != 0) return true;
    if (deadline.IsOver()) return false;
  }
}

}  // namespace

absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& argv, absl::Time deadline) {
  // All memory is allocated here, since the child may not.
  ASSIGN_OR_RETURN(const std::string program, LocateProgram(argv.at(0)));
  const std::vector<char*> arguments = PointersTo(argv);
  const auto exec = [&](int out) -> int { ExecProgram(program.c_str(), arguments.data(), out); };
  ChildCall call = {.subject = absl::StrJoin(argv, " "), .deadline = deadline};
  ASSIGN_OR_RETURN(ChildEnd end, RunChild(std::move(call), ChildOutput::kPipe, exec));
  return CommandResult{.exit_code = end.exit_code, .output = std::move(end.answer.output)};
}

absl::StatusOr<DetachedCommand> DetachedCommand::Start(const std::vector<std::string>& argv) {
  ASSIGN_OR_RETURN(const std::string program, LocateProgram(argv.at(0)));
  const std::vector<char*> arguments = PointersTo(argv);
  DetachedCommand command;
  command.output_.Reset(::memfd_create("lunkeeper-output", MFD_CLOEXEC));
  if (!command.output_)
    return absl::ErrnoToStatus(errno, absl::StrCat(argv[0], ": no memory for its output"));
  const int out = command.output_.get();
  command.pid_ = ::fork();
  if (command.pid_ < 0)
    return absl::ResourceExhaustedError(absl::StrCat(argv[0], ": cannot be started (errno ", errno, ")"));
  if (command.pid_ == 0) {
    ::setsid();  // no signal for this process's group or terminal reaches it
    ExecProgram(program.c_str(), arguments.data(), out);
  }
  // A number may be used again by another process; this descriptor cannot.
  command.handle_.Reset(static_cast<int>(::syscall(SYS_pidfd_open, command.pid_, 0)));
  return command;
}

std::optional<CommandResult> DetachedCommand::WaitForEnd(absl::Time deadline) {
  if (result_) return result_;
  if (!EndedBy(handle_.get(), SteadyDeadline(deadline))) return std::nullopt;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  // 128 and the signal's number, as a shell says it.
  const int exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result_ = CommandResult{.exit_code = exit_code, .output = ReadTail(output_.get())};
  return result_;
}

}  // namespace lunkeeper
