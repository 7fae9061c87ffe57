#pragma once
// Who held what when an agent was last asked, with the version of that answer. Failover asks twice a second,
// and the agent sends the list again only if it has changed. A whole grant is five times as large, and all
// arrays together may have 30,000. Thread-safe.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/grant_store.h"

namespace lunkeeper {

// What GrantFilter::holders_only asks for.
struct Holder {
  explicit Holder(Grant grant)
      : volume(std::move(grant.volume)),
        node(std::move(grant.node)),
        access(grant.access),
        owner(grant.owner),
        generation(grant.generation),
        limits(grant.limits) {}
  Grant AsGrant() const {
    Grant grant;
    grant.volume = volume;
    grant.node = node;
    grant.access = access;
    grant.owner = owner;
    grant.generation = generation;
    grant.limits = limits;
    return grant;
  }

  VolumeId volume;
  NodeId node;
  Access access;
  GrantOwner owner;
  Generation generation;
  VolumeLimits limits;
};

class KeptHolders {
 public:
  struct Kept {
    std::string version;  // empty: there is none, or its agent has no versions
    std::shared_ptr<const std::vector<Holder>> holders = std::make_shared<const std::vector<Holder>>();
    std::vector<Grant> AsGrants() const {
      std::vector<Grant> grants;
      grants.reserve(holders->size());
      for (const Holder& holder : *holders) grants.push_back(holder.AsGrant());
      return grants;
    }
  };

  Kept Get() const {
    const absl::MutexLock lock(&mutex_);
    return kept_;
  }
  void KeepAnswer(Kept kept) {
    const absl::MutexLock lock(&mutex_);
    kept_ = std::move(kept);
  }

 private:
  mutable absl::Mutex mutex_;
  Kept kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
