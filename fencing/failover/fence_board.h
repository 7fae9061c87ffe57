#pragma once
// The fences in force, as the arrays were last seen: what nodes are told in answer to their heartbeats.
// It is not core/known_arrays.h read by another thread, although both drop a stale look by the same rule. The
// board serves in every replica, between the core's events, and tells of a fence from the moment the array
// stores it, so that the node can stop. The core counts a volume as fenced only when no grant is left on it.
// Every replica has them, from its own looks; the leader knows of its own changes at once. A look that was
// begun before such a change is old and counts for nothing. Thread-safe; never blocks.

#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fencing/core/event.h"
#include "fencing/protocol/heartbeat_sink.h"

namespace lunkeeper::fencing {

class FenceBoard {
 public:
  void On(const ArrayView& view) {
    absl::MutexLock lock(&mutex_);
    Side& side = arrays_[view.array];
    if (view.asked < side.changed_at) return;
    side.fences.clear();
    for (const ArrayFence& fence : view.fences) side.fences[fence.node] = fence;
  }
  void Fenced(const ArrayId& array, const ArrayFence& fence, Instant now) {
    absl::MutexLock lock(&mutex_);
    arrays_[array].fences[fence.node] = fence;
    arrays_[array].changed_at = now;
  }
  void Unfenced(const ArrayId& array, const NodeId& node, Instant now) {
    absl::MutexLock lock(&mutex_);
    arrays_[array].fences.erase(node);
    arrays_[array].changed_at = now;
  }
  FencesByArray Of(const NodeId& node) const {
    absl::MutexLock lock(&mutex_);
    FencesByArray fences;
    for (const auto& [array, side] : arrays_)
      if (const auto found = side.fences.find(node); found != side.fences.end())
        fences[array] = found->second;
    return fences;
  }

 private:
  struct Side {
    std::optional<Instant> changed_at;
    std::map<NodeId, ArrayFence> fences;
  };
  mutable absl::Mutex mutex_;
  std::map<ArrayId, Side> arrays_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper::fencing
