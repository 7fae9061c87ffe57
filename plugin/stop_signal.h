#pragma once
// Lets a thread wait for SIGTERM or SIGINT. Uses handlers and not a blocked mask, because the programs that
// this process starts would inherit a mask. One object for the process, made in main() before any thread;
// WaitFor is for one thread.

#include "absl/time/time.h"

namespace lunkeeper {

class StopSignal {
 public:
  StopSignal();
  // True when one of them has come, also if that was before the call; false after `limit`.
  bool WaitFor(absl::Duration limit);
};

// Whether one of them has come. For any thread; false where there is no StopSignal.
bool StopAsked();

}  // namespace lunkeeper
