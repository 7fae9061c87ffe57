#pragma once
// Who held what when an agent was last asked, with the version of that answer. Failover asks twice a second,
// and the agent sends the list again only if it has changed. Thread-safe.

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
    std::vector<Grant> grants;
  };

  Kept Get() const {
    const absl::MutexLock lock(&mutex_);
    return kept_;
  }
  // Answers with the same grants.
  std::vector<Grant> KeepAnswer(std::string version, std::vector<Grant> grants) {
    const absl::MutexLock lock(&mutex_);
    kept_ = {std::move(version), std::move(grants)};
    return kept_.grants;
  }

 private:
  mutable absl::Mutex mutex_;
  Kept kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
