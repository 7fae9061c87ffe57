#include "devices/datapath/crash_marks.h"

#include <signal.h>
#include <unistd.h>

#include <array>

namespace lunkeeper {
namespace {

constexpr std::array kFatal = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};
// More than the registers of any processor, which the kernel saves there.
constexpr size_t kCrashStackBytes = size_t{64} << 10;
struct sigaction before[NSIG];

// abort() and raise() send it to their own thread.
bool IsFromOutside(const siginfo_t& info) {
  return info.si_code <= 0 && (info.si_code != SI_TKILL || info.si_pid != ::getpid());
}

// A fault happens again when this returns. What was sent (by abort), a trap and a forbidden system call do
// not, and are sent again: either way the process ends as it would have without this, with its core file or a
// sanitizer's report.
void OnFatalSignal(int number, siginfo_t* info, void* /*context*/) {
  if (!IsFromOutside(*info)) WorkOnVolume::MarkCrash();
  ::sigaction(number, &before[number], nullptr);
  if (info->si_code <= 0 || number == SIGTRAP || number == SIGSYS) ::raise(number);
}

}  // namespace

void MarkCrashes() {
  struct sigaction action = {};
  action.sa_sigaction = &OnFatalSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int number : kFatal) ::sigaction(number, &action, &before[number]);
}

CrashStack::CrashStack() : stack_(std::make_unique<char[]>(kCrashStackBytes)) {
  stack_t mine = {};
  mine.ss_sp = stack_.get();
  mine.ss_size = kCrashStackBytes;
  ::sigaltstack(&mine, &before_);
}

CrashStack::~CrashStack() { ::sigaltstack(&before_, nullptr); }

}  // namespace lunkeeper
