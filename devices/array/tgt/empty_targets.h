#pragma once
// Targets without a LUN, of grants that are gone: tgtd lists a session of theirs still, and refuses to delete
// them until it has ended. They let nobody in. The agent's successor finds them again (GrantTargets).
// Thread-safe. What fails is tried again with the next DeleteAll.

#include <chrono>
#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/tgt/session_cutter.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper {

class EmptyTargets {
 public:
  EmptyTargets(const TgtClient* tgt, SessionCutter* sessions) : tgt_(tgt), sessions_(sessions) {}

  void Add(int32_t target) ABSL_LOCKS_EXCLUDED(mu_);
  // It is about to be made anew, and stays then.
  void KeepTarget(int32_t target) ABSL_LOCKS_EXCLUDED(mu_);
  // tgtd is new, or this agent, and Add follows for each that there is.
  void ForgetAll() ABSL_LOCKS_EXCLUDED(mu_);
  // Deletes those whose sessions have ended since. To be called about once a second. It may also end stuck
  // connections of a session's node, to whichever target: for so long only, as tgtd lists some for ever.
  static constexpr std::chrono::seconds kEndsStuckFor{5};
  void DeleteAll() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  void CutSessions(int32_t target, SteadyTime empty_since);
  // False: it has a session still.
  absl::StatusOr<bool> TryDelete(int32_t target) ABSL_LOCKS_EXCLUDED(mu_);

  const TgtClient* const tgt_;
  SessionCutter* const sessions_;
  absl::Mutex mu_;
  std::map<int32_t, SteadyTime> targets_ ABSL_GUARDED_BY(mu_);  // and since when each is one of them
};

}  // namespace lunkeeper
