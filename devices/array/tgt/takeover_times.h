#pragma once
// How long a gateway needed for each step from taking its array to serving it. Thread-safe; it waits for
// nothing.

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/gateway_state.h"
#include "devices/array/tgt/gateway_record.h"

namespace lunkeeper {

// How a gateway came to have the array, as far as the records before and after it say. `stood_still`: for how
// long the one before has been seen not to change.
GatewayState DescribeTaken(const std::optional<GatewayRecord>& before, const GatewayRecord& next,
                           absl::Duration stood_still);

class TakeoverTimes {
 public:
  // The array has just been taken. `begun`: what is known of that.
  explicit TakeoverTimes(GatewayState begun) : state_(std::move(begun)) {}

  // What was done since the last phase, or since the beginning.
  void EndPhase(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_);
  // After the last phase.
  void NoteServing() ABSL_LOCKS_EXCLUDED(mu_);
  // Nothing: it does not serve yet.
  std::optional<GatewayState> FindState() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Clock = std::chrono::steady_clock;
  mutable absl::Mutex mu_;
  GatewayState state_ ABSL_GUARDED_BY(mu_);
  Clock::time_point last_ ABSL_GUARDED_BY(mu_) = Clock::now();
  std::optional<Clock::time_point> serving_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
