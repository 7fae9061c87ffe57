#pragma once
// Lets a test set the wall clock back, without touching the machine's: in a program that links this, libc's
// clock is ahead of the kernel's by what the test says. A wait until a wall clock time, as Abseil's timed
// waits are, then ends as late as after the clock was set back by so much. For the whole process.

#include <functional>

#include "absl/time/time.h"

namespace lunkeeper::testing {

// While it lives.
class WallClockAhead {
 public:
  explicit WallClockAhead(absl::Duration by);
  ~WallClockAhead();
  WallClockAhead(const WallClockAhead&) = delete;
  WallClockAhead& operator=(const WallClockAhead&) = delete;
};

// absl::Now reckons for some seconds from the time that it last read. Returns when it shows what libc does:
// call it where a change of the clock is to be seen by all that comes next.
void AwaitAbseilsClock();

// Whether `wait` ends within half a minute while the clock is an hour ahead. `end` has to end it otherwise.
bool EndsThoughClockIsSetBack(const std::function<void()>& wait, const std::function<void()>& end);

}  // namespace lunkeeper::testing
