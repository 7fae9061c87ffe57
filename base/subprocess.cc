#include "base/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/child.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Not the caller's PATH: which mkfs runs must not depend on how the driver was started.
constexpr char kEnvironmentPath[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr const char* kSearchPath = kEnvironmentPath + 5;

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

}  // namespace

absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& argv, absl::Time deadline) {
  // All memory is allocated here, since the child may not.
  ASSIGN_OR_RETURN(const std::string program, LocateProgram(argv.at(0)));
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const auto exec = [&](int out) -> int { ExecProgram(program.c_str(), arguments.data(), out); };
  ChildCall call = {.subject = absl::StrJoin(argv, " "), .deadline = deadline};
  ASSIGN_OR_RETURN(ChildEnd end, RunChild(std::move(call), ChildOutput::kPipe, exec));
  return CommandResult{.exit_code = end.exit_code, .output = std::move(end.answer.output)};
}

}  // namespace lunkeeper
