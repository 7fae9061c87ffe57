#pragma once
// Who held what when an agent was last asked, with the version of that answer. Failover asks twice a second,
// and the agent sends the list again only if it has changed. Thread-safe.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/grant_store.h"

namespace lunkeeper {

class KeptHolders {
 public:
  struct Kept {
    std::string version;  // empty: there is none, or its agent has no versions
    std::shared_ptr<const std::vector<Grant>> grants = std::make_shared<const std::vector<Grant>>();
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
