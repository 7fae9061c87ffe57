#pragma once
// How much of an array's time each machine may take for new grants, so that one that acquires and releases
// without end, by a mistake or on purpose, delays the others by little. tgtd makes one target at a time:
// among thousands of them that takes it some 75 ms, in which it does nothing else.
//
// A machine has a few turns at a time, and a credit, which pays for the time of its turns and grows again
// slowly. Among few targets a turn takes milliseconds, and no credit ends. Releases take no turn, as each is
// of a grant that did; fences take none either. Thread-safe.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/steady_mutex.h"
#include "devices/types.h"

namespace lunkeeper {

struct ShareLimits {
  using Duration = std::chrono::steady_clock::duration;
  size_t at_a_time = 4;
  // For all volumes of a node that starts, one after another among thousands of targets.
  Duration at_once = std::chrono::seconds(30);
  double share = 0.1;  // of the time that passes
  // A turn is paid for no longer than tgtd takes, and holds its place not for much longer: what takes more
  // waits for others, or for a store.
  Duration paid = std::chrono::milliseconds(100);
  Duration held = std::chrono::seconds(2);
};

class MachineShares {
 public:
  using Clock = std::chrono::steady_clock;
  explicit MachineShares(const ShareLimits& limits = {}) : limits_(limits) {}

  using Turn = std::shared_ptr<void>;  // ends when it is destroyed
  // Null: the machine has none left now.
  Turn TakeTurn(const ClusterId& cluster, const NodeId& node) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until the machine has a turn left, or until then. Another call may be faster.
  void AwaitTurn(const ClusterId& cluster, const NodeId& node, Clock::time_point until)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Key = std::pair<std::string, std::string>;  // cluster and machine
  struct Machine {
    Clock::duration credit;
    Clock::time_point filled;               // when the credit grew last
    std::deque<Clock::time_point> turns{};  // when each began that has not ended
    int waiting = 0;
  };
  Machine& Find(const Key& key, Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When it has a turn left; the past: now.
  Clock::time_point NextTurn(const Machine& machine) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndTurn(const Key& key, Clock::time_point began) ABSL_LOCKS_EXCLUDED(mutex_);
  void ForgetIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ShareLimits limits_;
  SteadyMutex mutex_;
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;  // turns
  std::map<Key, Machine> machines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
