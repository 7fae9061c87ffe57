#pragma once
// Ends the sessions of targets in one tgtd. tgtd lists a session until its last command is over, and one
// whose LUN reset it has forgotten for as long as it lives: of two resets that wait for the same command it
// answers the later one (docs/tgt.md). So a list that does not become empty is no proof that a command runs.
// What is: tgtd refuses to delete a LUN while one does, whatever it lists. One whose answer waits for a node
// that takes none counts as running, so such connections are ended (stuck_connections.h).
//
// Thread-safe. An error is tgtd's; NOT_FOUND: there is no such target.

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/tgt/stuck_connections.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper {

enum class SessionsLeft {
  kNone,     // and no command runs
  kEnding,   // cut, and listed still: call again
  kOverdue,  // for longer than one without a command, and once a second: try to delete the LUN
};

class SessionCutter {
 public:
  SessionCutter(const TgtClient* tgt, StuckConnections::Portals portals)
      : tgt_(tgt), stuck_(tgt, std::move(portals)) {}

  // Cuts what is listed, ends stuck connections of their nodes, and says what the list was.
  absl::StatusOr<SessionsLeft> CutSessions(int32_t target) ABSL_LOCKS_EXCLUDED(mu_);
  // Cuts what is listed, which is the answer, and ends none that is stuck.
  absl::StatusOr<std::vector<TgtConnection>> CutListed(int32_t target);
  // What it lists from now on has been cut for no time yet: it is open again, or gone.
  void Forget(int32_t target) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  SessionsLeft ClassifyList(int32_t target, bool empty) ABSL_LOCKS_EXCLUDED(mu_);

  const TgtClient* const tgt_;
  StuckConnections stuck_;
  absl::Mutex mu_;
  std::map<int32_t, SteadyTime> ending_since_ ABSL_GUARDED_BY(mu_);  // or since the last kOverdue
};

}  // namespace lunkeeper
