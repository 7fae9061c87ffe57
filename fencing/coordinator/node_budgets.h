#pragma once
// What one machine may cost a controller, so that a node that is broken, or broken into, takes nothing from
// the others: unary calls at a time and per second, streams likewise, heartbeats over all of its streams, and
// instances that it calls itself: arrays and controllers keep something of each. Thread-safe, never blocks.
// The budgets of machines that do nothing for an hour are forgotten. Failure: RESOURCE_EXHAUSTED, which a
// node answers by asking another controller, or again a moment later.

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace lunkeeper {

// So many at once, and then so many a second. Not thread-safe.
class RateLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;
  RateLimit(double at_once, double per_second) : at_once_(at_once), per_second_(per_second), left_(at_once) {}
  // One more; false: not now.
  bool Take(Time now = std::chrono::steady_clock::now());

 private:
  double at_once_, per_second_, left_;
  Time filled_ = std::chrono::steady_clock::now();
};

struct NodeLimits {
  // A node that has just started stages all its volumes, and asks what it holds for each.
  double calls_at_once = 1000, calls_per_second = 50;
  int running_calls = 128;
  // A node has one stream. Its next plugin may begin before the end of the last one's has been noticed.
  size_t streams = 4;
  // A node begins one a second at most, where each ends at once.
  double streams_at_once = 60, streams_per_second = 2;
  // Nodes send two a second.
  double heartbeats_at_once = 60, heartbeats_per_second = 10;
  size_t instances = 16;  // within an hour; a machine that is set up anew is another one
};

class NodeBudgets {
 public:
  explicit NodeBudgets(const NodeLimits& limits = {}) : limits_(limits) {}

  using Running = std::shared_ptr<void>;  // a call that runs until this is destroyed
  absl::StatusOr<Running> BeginCall(const std::string& machine);
  // It calls itself this.
  absl::Status NoteInstance(const std::string& machine, const std::string& instance);
  // False: one more than any node sends.
  bool TakeHeartbeat(const std::string& machine);

  // A stream of this machine. Beyond the limit its oldest one has to `end`, which is called here, under a
  // mutex, and only begins the end. Returns the stream's number for EndStream.
  absl::StatusOr<uint64_t> BeginStream(const std::string& machine, std::function<void()> end);
  void EndStream(const std::string& machine, uint64_t stream);

  const NodeLimits& limits() const { return limits_; }

 private:
  struct Stream {
    uint64_t number;
    std::function<void()> end;
  };
  struct Budget {
    RateLimit calls, begun, heartbeats;
    std::map<std::string, RateLimit::Time> instances;  // when it was each of them last
    int running = 0;
    std::deque<Stream> streams;  // oldest first
    RateLimit::Time used;
  };
  Budget& BudgetOf(const std::string& machine) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetIdle(RateLimit::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const NodeLimits limits_;
  absl::Mutex mutex_;
  std::map<std::string, Budget> budgets_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_stream_ ABSL_GUARDED_BY(mutex_) = 0;
  RateLimit::Time tidied_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
