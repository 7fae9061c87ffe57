#include "devices/datapath/crash_marks.h"

#include <signal.h>

#include <array>

namespace lunkeeper {
namespace {

constexpr std::array kFatal = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
struct sigaction before[NSIG];

// A fault happens again when this returns, and a signal that was sent (by abort) is sent again: either way
// the process ends as it would have without this, with its core file or a sanitizer's report.
void OnFatalSignal(int number, siginfo_t* info, void* /*context*/) {
  WorkOnVolume::MarkCrash();
  ::sigaction(number, &before[number], nullptr);
  if (info->si_code <= 0) ::raise(number);
}

}  // namespace

void MarkCrashes() {
  struct sigaction action = {};
  action.sa_sigaction = &OnFatalSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int number : kFatal) ::sigaction(number, &action, &before[number]);
}

}  // namespace lunkeeper
