#pragma once
// An end by the steady clock, for what must not take longer, or less long, because somebody sets the time of
// day meanwhile. A value: copies end at the same time.

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lunkeeper {

class SteadyDeadline {
 public:
  explicit SteadyDeadline(absl::Duration within)
      : end_(std::chrono::steady_clock::now() +
             absl::ToChronoNanoseconds(std::clamp(within, absl::ZeroDuration(), kLongest))) {}
  // As far away as a time of day is now.
  explicit SteadyDeadline(absl::Time until) : SteadyDeadline(until - absl::Now()) {}
  std::chrono::steady_clock::time_point end() const { return end_; }
  absl::Duration left() const {
    return std::max(absl::FromChrono(end_ - std::chrono::steady_clock::now()), absl::ZeroDuration());
  }
  bool IsOver() const { return left() == absl::ZeroDuration(); }

 private:
  static constexpr absl::Duration kLongest = absl::Hours(24 * 365);  // one that can be added to the time
  std::chrono::steady_clock::time_point end_;
};

}  // namespace lunkeeper
