#pragma once
// For other replicas that ask: when the heartbeats of each node last reached this replica, and which nodes
// have ended their streams while their kernels go on. The core has the same, but on a thread of its own,
// which a question need not wait for. Thread-safe; never blocks. Nodes that fell silent are forgotten, so
// that it grows with the nodes that there are.

#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fencing/core/types.h"

namespace lunkeeper::fencing {

class HeardNodes {
 public:
  // `probation`: of Settings. A plugin that is away for longer is not being upgraded.
  explicit HeardNodes(Span probation) : probation_(probation) {}
  void SetProbation(Span probation) {
    absl::MutexLock lock(&mutex_);
    probation_ = probation;
  }
  void NoteHeartbeat(const NodeId& node, Instant now) {
    absl::MutexLock lock(&mutex_);
    heard_at_[node] = now;
    ended_.erase(node);
    if (now - swept_at_ < kSweepEvery) return;
    swept_at_ = now;
    std::erase_if(heard_at_, [&](const auto& entry) { return now - entry.second >= kHears; });
    std::erase_if(ended_, [&](const auto& entry) { return now - entry.second.answered_at >= kSweepEvery; });
  }
  // Its stream ended. That counts as an answer of its kernel, which alone can have closed it.
  void NoteEnd(const NodeId& node, Instant now) {
    absl::MutexLock lock(&mutex_);
    heard_at_.erase(node);
    ended_[node] = {now, now};
  }
  // Its kernel answered a probe.
  void NoteAnswer(const NodeId& node, Instant now) {
    absl::MutexLock lock(&mutex_);
    if (const auto ended = ended_.find(node); ended != ended_.end()) ended->second.answered_at = now;
  }
  bool Hears(const NodeId& node, Instant now) const {
    absl::MutexLock lock(&mutex_);
    const auto heard = heard_at_.find(node);
    return heard != heard_at_.end() && now - heard->second < kHears;
  }
  // Its stream ended a short time ago, and its kernel has answered since, within two seconds.
  bool KernelAnswers(const NodeId& node, Instant now) const {
    absl::MutexLock lock(&mutex_);
    const auto found = ended_.find(node);
    if (found == ended_.end()) return false;
    const auto& [ended_at, answered_at] = found->second;
    return now - ended_at < probation_ + kSlack && now - answered_at < kAnswers;
  }

 private:
  // Two heartbeats, which come each half second: an older one may be the last that the node ever sent. Probes
  // come as often, and may take longer.
  static constexpr Span kHears = 1_s, kAnswers = 2_s, kSweepEvery = 60_s;
  // A plugin that is not back may have lost its way to this replica alone: after the leader's probation,
  // which begins at another moment, the end of its stream says nothing any more.
  static constexpr Span kSlack = 60_s;
  struct End {
    Instant ended_at, answered_at;  // its kernel last showed life then
  };
  mutable absl::Mutex mutex_;
  std::map<NodeId, Instant> heard_at_ ABSL_GUARDED_BY(mutex_);
  std::map<NodeId, End> ended_ ABSL_GUARDED_BY(mutex_);
  Instant swept_at_ ABSL_GUARDED_BY(mutex_);
  Span probation_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper::fencing
