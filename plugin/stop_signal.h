#pragma once
// SIGTERM and SIGINT as something to wait for. Uses handlers, not a blocked mask, because programs we start
// would inherit a mask. One object a process, made in main() before any thread; Wait is for one thread.

namespace lunkeeper {

class StopSignal {
 public:
  StopSignal();
  // Until the first of them has come, also if that was before the call.
  void Wait();
};

}  // namespace lunkeeper
