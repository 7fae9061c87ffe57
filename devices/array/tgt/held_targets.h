#pragma once
// The targets of grants that could not be opened when they were to be; each tick tries them again
// (GrantTargets::RetryHeld). Thread-safe.

#include <cstddef>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "devices/array/tgt/catalogue.h"

namespace lunkeeper {

struct Restoration {
  GrantRow grant;
  bool is_open = false;  // its target is, and may have had its image opened anew
  bool is_new = false;   // a node's call could not open it, and the next call of that node may have since
};

class HeldTargets {
 public:
  void Hold(const Restoration& restoration, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_) {
    const GrantRow& grant = restoration.grant;
    {
      const absl::MutexLock lock(&mu_);
      // One that is held already has to be opened anew in any case.
      if (restoration.is_new && held_.contains(grant.generation)) return;
      held_.insert_or_assign(grant.generation, restoration);
    }
    LogError("array", absl::StrCat(restoration.is_new ? "open volume " : "put back volume ",
                                   grant.volume.value(), ": ", why.message(), "; trying again every second"));
  }
  // Whether it is held as it was then.
  bool IsHeldAs(const Restoration& restoration) const ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    const auto held = held_.find(restoration.grant.generation);
    return held != held_.end() && held->second.is_open == restoration.is_open &&
           held->second.is_new == restoration.is_new;
  }
  void ForgetHeld(const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    held_.erase(grant.generation);
  }
  void ForgetAll() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    held_.clear();
  }
  std::map<Generation, Restoration> ListHeld() const ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    return held_;
  }

 private:
  mutable absl::Mutex mu_;
  std::map<Generation, Restoration> held_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
