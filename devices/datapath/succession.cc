#include "devices/datapath/succession.h"

#include <memory>
#include <string>

#include "base/log.h"
#include "devices/datapath/supervisor.h"

namespace lunkeeper {
namespace {

constexpr timespec kTurnPoll = {.tv_sec = 1, .tv_nsec = 0};

bool WaitForStopSignal() {
  const sigset_t set = BlockStopSignals();
  return ::sigtimedwait(&set, nullptr, &kTurnPoll) > 0;
}

// nullptr: told to stop. `may_ask`: else only an end of the other one is waited for.
absl::StatusOr<std::unique_ptr<Supervisor>> AwaitTurn(const DatapathOptions& options, bool may_ask) {
  std::string said;
  do {
    absl::StatusOr<std::unique_ptr<Supervisor>> supervisor = Supervisor::Create(options);
    if (!options.take_over || !absl::IsAlreadyExists(supervisor.status())) return supervisor;
    if (!may_ask) continue;
    supervisor = Supervisor::Succeed(options);
    if (supervisor.ok()) return supervisor;
    const std::string why(supervisor.status().message());
    // Once for each reason, not each second.
    if (why != said) LogWarn("datapath", "waits for the data path that is here", {{"reason", why}});
    said = why;
  } while (!WaitForStopSignal());
  return nullptr;
}

}  // namespace

// Before any thread starts: threads inherit the mask, and one that did not would take the signal.
sigset_t BlockStopSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return set;
}

absl::Status ServeInTurn(const DatapathOptions& options) {
  BlockStopSignals();
  bool may_ask = true;
  while (true) {
    const absl::StatusOr<std::unique_ptr<Supervisor>> supervisor = AwaitTurn(options, may_ask);
    if (!supervisor.ok() || *supervisor == nullptr) return supervisor.status();
    const absl::Status ended = (*supervisor)->Run();
    const bool waits = options.take_over && (*supervisor)->handed_over() && !(*supervisor)->stop_requested();
    if (!ended.ok() || !waits) return ended;
    may_ask = false;  // or the two would take over from each other for ever
  }
}

}  // namespace lunkeeper
