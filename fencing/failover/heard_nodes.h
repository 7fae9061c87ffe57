#pragma once
// When the heartbeats of each node last reached this replica, for other replicas that ask. The core has the
// same, but on a thread of its own, which a question need not wait for. Thread-safe; never blocks. Nodes that
// fell silent are forgotten, so that it grows with the nodes that there are.

#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fencing/core/types.h"

namespace lunkeeper::fencing {

class HeardNodes {
 public:
  void Note(const NodeId& node, Instant now) {
    absl::MutexLock lock(&mutex_);
    heard_at_[node] = now;
    if (now - swept_at_ < kSweepEvery) return;
    swept_at_ = now;
    std::erase_if(heard_at_, [&](const auto& entry) { return now - entry.second >= kHears; });
  }
  void Forget(const NodeId& node) {
    absl::MutexLock lock(&mutex_);
    heard_at_.erase(node);
  }
  bool Hears(const NodeId& node, Instant now) const {
    absl::MutexLock lock(&mutex_);
    const auto heard = heard_at_.find(node);
    return heard != heard_at_.end() && now - heard->second < kHears;
  }

 private:
  // Two heartbeats, which come each half second: an older one may be the last that the node ever sent.
  static constexpr Span kHears = 1_s, kSweepEvery = 60_s;
  mutable absl::Mutex mutex_;
  std::map<NodeId, Instant> heard_at_ ABSL_GUARDED_BY(mutex_);
  Instant swept_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper::fencing
