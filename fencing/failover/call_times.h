#pragma once
// How long a call to the API server may take. A short first try finds another API server where one hangs. But
// a webhook whose backend is away, and that may be skipped (failurePolicy Ignore), holds a write for its own
// timeout, up to 10 s by default, before the API server stores it, and two webhooks for 20 s; and a caller
// that hangs up first has withdrawn the write. So a call that timed out gets twice the time when it is
// repeated, up to eight times. What it needed it gets from the start while it needs more than a first try
// has. Thread-safe; never blocks.

#include <algorithm>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "fencing/core/time.h"

namespace lunkeeper::fencing {

class CallTimes {
 public:
  explicit CallTimes(absl::Duration first) : first_(first) {}

  // `call`: what is asked for, of which object.
  absl::Duration TimeFor(const std::string& call) const {
    absl::MutexLock lock(&mutex_);
    const auto found = late_.find(call);
    return found == late_.end() ? first_ : first_ * (1 << std::min(found->second.times, kMostDoublings));
  }
  bool IsSlow(const std::string& call) const { return TimeFor(call) > first_; }
  // `took`: until it was answered, or timed out.
  void NoteAnswer(const std::string& call, const absl::Status& status, absl::Duration took, Instant now) {
    absl::MutexLock lock(&mutex_);
    std::erase_if(late_, [&](const auto& each) { return now - each.second.at >= kForget; });
    const bool timed_out = absl::IsDeadlineExceeded(status);
    if (!timed_out && took <= first_) {
      late_.erase(call);
      return;
    }
    auto& late = late_[call];
    late.times += timed_out ? 1 : 0;
    late.at = now;
  }

 private:
  static constexpr int kMostDoublings = 3;
  static constexpr Span kForget = 3600_s;  // of many calls each waits for long until it is repeated
  struct Late {
    int times = 0;  // since it last was answered as fast as a first try has to be
    Instant at;
  };

  const absl::Duration first_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Late> late_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper::fencing
