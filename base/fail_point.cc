// A point that is reached reads an environment variable and compares a name, which is cheap beside the I/O
// that surrounds every point. It acts in the thread that reaches it, so nothing after it has happened yet.
#include "base/fail_point.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

// Filled by static constructors, before any thread exists; read-only afterwards.
// Not a plain global: other files' static constructors use it, in an order that the language leaves open.
std::vector<std::string>& AllNames() {
  static auto* names = new std::vector<std::string>;
  return *names;
}

// O_EXCL: of several processes that share the file, exactly one is first.
[[maybe_unused]] bool IsFirstTime() {
  const char* once = std::getenv("LUNKEEPER_FAIL_POINT_ONCE");
  if (once == nullptr) return true;
  return static_cast<bool>(UniqueFd(::open(once, O_CREAT | O_EXCL | O_CLOEXEC, 0600)));
}

// Waits, so that what the program kills is dead before the code goes on.
[[maybe_unused]] void RunAndWait(const char* program) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(program, program, static_cast<char*>(nullptr));
    ::_exit(127);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
}

[[maybe_unused]] void ComputeForEver() {
  std::atomic<bool> end{false};
  while (!end) {
  }
}

}  // namespace

std::vector<std::string> FailPointNames() {
  std::vector<std::string> names = AllNames();
  // A point in a template or an inline function registers once for each file that has it.
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

#ifdef LUNKEEPER_FAIL_POINTS
namespace internal {

FailPointSite::FailPointSite(const char* name) : name_(name) { AllNames().push_back(name); }

void FailPointSite::Hit() const {
  const char* wanted = std::getenv("LUNKEEPER_FAIL_POINT");
  if (wanted == nullptr) return;
  const size_t length = std::strlen(name_);
  if (std::strncmp(wanted, name_, length) != 0) return;
  constexpr char kExec[] = ":exec=";
  const char* action = wanted + length;
  if (*action == '\0') {
    // SIGKILL, since no handler and no destructor may run: a power loss runs none either.
    if (IsFirstTime()) ::raise(SIGKILL);
  } else if (std::strncmp(action, kExec, sizeof(kExec) - 1) == 0) {
    if (IsFirstTime()) RunAndWait(action + sizeof(kExec) - 1);
  }
}

void FailPointSite::HitAt(uint64_t number) const {
  const char* wanted = std::getenv("LUNKEEPER_FAIL_POINT");
  if (wanted == nullptr) return;
  const size_t length = std::strlen(name_);
  if (std::strncmp(wanted, name_, length) != 0 || wanted[length] != '@') return;
  char* action = nullptr;
  if (std::strtoull(wanted + length + 1, &action, 10) != number || !IsFirstTime()) return;
  if (std::strcmp(action, ":hang") == 0) ComputeForEver();
  std::abort();
}

}  // namespace internal
#endif

}  // namespace lunkeeper
