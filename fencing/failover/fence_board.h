#pragma once
// The fences in force, as of the last poll of each array. Answers to heartbeats carry them to the nodes.
// Every replica has a board from its own polls; the leader also enters its own changes at once. A poll that
// began before such a change is ignored. Thread-safe; never blocks.
//
// fencing/core/known_arrays.h keeps fences by the same staleness rule but to another end: the core leaves out
// volumes that are not drained yet, whereas a node must know of every fence at once.

#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/protocol/heartbeat_sink.h"

namespace lunkeeper::fencing {

class FenceBoard {
 public:
  void OnArrayView(const ArrayView& view) {
    absl::MutexLock lock(&mutex_);
    Side& side = arrays_[view.array];
    if (view.asked < side.changed_at) return;
    side.fences.clear();
    for (const ArrayFence& fence : view.fences) side.fences[fence.node] = fence;
  }
  void OnFenced(const ArrayId& array, const ArrayFence& fence, Instant now) {
    absl::MutexLock lock(&mutex_);
    arrays_[array].fences[fence.node] = fence;
    arrays_[array].changed_at = now;
  }
  // A node does not know of the fence yet, and the core says so again and again. What is here of that fence
  // is whole, and no news: else no poll that takes longer than the next Notify would ever count.
  void OnNotify(const Notify& call, Instant now) {
    absl::MutexLock lock(&mutex_);
    Side& side = arrays_[call.array];
    const auto known = side.fences.find(call.node);
    if (known != side.fences.end() && known->second.generation >= call.fence.generation) return;
    side.fences[call.node] = call.fence;
    side.changed_at = now;
  }
  void OnUnfenced(const ArrayId& array, const NodeId& node, Instant now) {
    absl::MutexLock lock(&mutex_);
    arrays_[array].fences.erase(node);
    arrays_[array].changed_at = now;
  }
  FencesByArray FencesOf(const NodeId& node) const {
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
