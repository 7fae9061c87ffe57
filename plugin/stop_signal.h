#pragma once
// SIGTERM and SIGINT as something to wait for. Uses handlers, not a blocked mask, because programs we start
// would inherit a mask. One object a process, made in main() before any thread; WaitFor is for one thread.

#include "absl/time/time.h"

namespace lunkeeper {

class StopSignal {
 public:
  StopSignal();
  // True when one of them has come, also if that was before the call; false after `limit`.
  bool WaitFor(absl::Duration limit);
};

}  // namespace lunkeeper
