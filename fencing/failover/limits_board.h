#pragma once
// The limits of granted volumes, as of the last look at each array. Answers to heartbeats carry them to the
// nodes, which take on those of a higher version than they have. Thread-safe; never blocks.

#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/grant_store.h"
#include "fencing/core/types.h"

namespace lunkeeper::fencing {

// Of volumes that have had any.
using LimitsByNode = std::map<NodeId, LimitsByVolume>;

inline LimitsByNode LimitsOfGrants(const std::vector<Grant>& grants) {
  LimitsByNode limits;
  for (const Grant& grant : grants)
    if (grant.limits.version != 0) limits[grant.node][grant.volume] = grant.limits;
  return limits;
}

class LimitsBoard {
 public:
  // All that the array has.
  void OnLimits(const ArrayId& array, LimitsByNode limits) {
    absl::MutexLock lock(&mutex_);
    arrays_[array] = std::move(limits);
  }
  LimitsByVolume LimitsOf(const NodeId& node) const {
    LimitsByVolume limits;
    absl::MutexLock lock(&mutex_);
    for (const auto& [array, nodes] : arrays_)
      if (const auto found = nodes.find(node); found != nodes.end())
        limits.insert(found->second.begin(), found->second.end());
    return limits;
  }

 private:
  mutable absl::Mutex mutex_;
  std::map<ArrayId, LimitsByNode> arrays_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper::fencing
