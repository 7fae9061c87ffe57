#pragma once
// When each cluster last called an array agent, as evidence of whether it still uses the array: a controller
// in Kubernetes asks its arrays every second. One of another orchestrator may live and be silent.
// Thread-safe.

#include <chrono>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "devices/types.h"

namespace lunkeeper {

class ClusterCalls {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // How long a cluster has to have been silent. Longer than a controller's pause between two calls; one that
  // is merely away for longer finds its volumes gone, and no data are lost by that.
  static constexpr std::chrono::seconds kSilence{30};

  // `now`: for tests.
  explicit ClusterCalls(std::function<Time()> now = std::chrono::steady_clock::now)
      : now_(std::move(now)), started_(now_()) {}

  void NoteCall(const ClusterId& cluster) ABSL_LOCKS_EXCLUDED(mu_);
  // FAILED_PRECONDITION: it has called since, or this agent runs for less than that and cannot know.
  absl::Status CheckSilent(const ClusterId& cluster) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::function<Time()> now_;
  const Time started_;
  mutable absl::Mutex mu_;
  std::map<ClusterId, Time> last_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
