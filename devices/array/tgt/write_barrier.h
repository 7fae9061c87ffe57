#pragma once
// A moment in which nothing is written to any volume of the array, for work that has to see all of them as of
// one moment (tgtd_pause.h says what is held, and for how long at most).
//
// Thread-safe. One barrier at a time; and however many are asked for, I/O stands for at most a tenth of the
// time, and is slow for at most a quarter of it.

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/steady_mutex.h"
#include "devices/array/tgt/tgt_servers.h"
#include "devices/array/tgt/tgtd_pause.h"
#include "devices/array/tgt/write_throttle.h"

namespace lunkeeper {

class WriteBarrier {
 public:
  // `servers` outlives it.
  explicit WriteBarrier(const TgtServers& servers) : servers_(servers) {}

  // When its turn has come: `prepare`, which is for what can be done while I/O goes on, and then `work`
  // inside the barrier. `prepare` may start the throttle, which ends with it. `work` gives up at `end`.
  // OK: `work` has seen one moment.
  // UNAVAILABLE: it has not, and what it made is worth nothing. Else what `prepare` or `work` has returned.
  absl::Status RunInside(absl::FunctionRef<absl::Status(WriteThrottle&)> prepare,
                         absl::FunctionRef<absl::Status(TgtdPause::Clock::time_point end)> work)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Status TakeTurn() ABSL_LOCKS_EXCLUDED(mu_);
  void LeaveTurn(TgtdPause::Clock::duration stood) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status RunPaused(absl::FunctionRef<absl::Status(TgtdPause::Clock::time_point end)> work);

  const TgtServers& servers_;
  SteadyMutex mu_;
  bool taken_ ABSL_GUARDED_BY(mu_) = false;
  TgtdPause::Clock::time_point next_ ABSL_GUARDED_BY(mu_) = {};  // the next barrier may begin
};

}  // namespace lunkeeper
