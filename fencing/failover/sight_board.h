#pragma once
// What this replica sees, for others that ask. The core computes it on its own thread, for which a question
// does not wait. Thread-safe; never blocks. What is old says nothing: that thread may hang.

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fencing/core/types.h"

namespace lunkeeper::fencing {

class SightBoard {
 public:
  void Note(const std::optional<ReplicaSight>& sight, Instant now) {
    absl::MutexLock lock(&mutex_);
    sight_ = sight;
    noted_at_ = now;
  }
  // None: this replica could not lead.
  std::optional<ReplicaSight> Latest(Instant now) const {
    absl::MutexLock lock(&mutex_);
    return now - noted_at_ < kLasts ? sight_ : std::nullopt;
  }

 private:
  static constexpr Span kLasts = 1_s;  // four ticks
  mutable absl::Mutex mutex_;
  std::optional<ReplicaSight> sight_ ABSL_GUARDED_BY(mutex_);
  Instant noted_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper::fencing
