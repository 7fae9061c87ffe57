#pragma once
// Wakes a thread that waits for work, or for a length of time. The time is the steady clock's: Abseil's own
// timed waits end at a time of the wall clock, so that one set back by an hour makes them an hour longer.
// Thread-safe; one thread waits.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/time/time.h"

namespace lunkeeper {

class SteadySignal {
 public:
  // Ends the wait, or else the next one.
  void Set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_one();
  }
  // True: Set was called since the last wait. False: `time` has passed.
  bool WaitFor(absl::Duration time) {
    std::unique_lock lock(mutex_);
    // Longer ones would overflow when the time now is added.
    const auto most = absl::ToChronoNanoseconds(std::min(time, absl::Hours(24 * 365)));
    changed_.wait_until(lock, std::chrono::steady_clock::now() + most, [this] { return set_; });
    return std::exchange(set_, false);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

}  // namespace lunkeeper
