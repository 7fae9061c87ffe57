#include "devices/array/tgt/write_barrier.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/tgt/tgtd_pause.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kTurnTimeout = absl::Seconds(20);
// For each moment that I/O stood, so many in which it does not.
constexpr int kRest = 9;
// A moment of the throttle, in which a few commands went on, counts as a third of one.
constexpr int kThrottled = 3;

}  // namespace

absl::Status WriteBarrier::RunInside(absl::FunctionRef<absl::Status(WriteThrottle&)> prepare,
                                     absl::FunctionRef<absl::Status(TgtdPause::Clock::time_point end)> work) {
  RETURN_IF_ERROR(TakeTurn());
  WriteThrottle throttle(servers_);
  absl::Status status = prepare(throttle);
  throttle.Stop();
  // Also of a pause that failed: I/O may have stood for as long as tgtd was waited for.
  const auto begun = TgtdPause::Clock::now();
  if (status.ok()) status = RunPaused(work);
  LeaveTurn(throttle.stood() / kThrottled + (TgtdPause::Clock::now() - begun));
  return status;
}

absl::Status WriteBarrier::RunPaused(absl::FunctionRef<absl::Status(TgtdPause::Clock::time_point end)> work) {
  const auto begun = TgtdPause::Clock::now();
  // The last one begins after all that the others have answered, so together they show one moment.
  ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<TgtdPause>> pauses, servers_.PauseTgtds());
  FAIL_POINT("array.barrier.begun");
  absl::Status status = work(pauses.front()->end());
  FAIL_POINT("array.barrier.worked");
  for (const auto& pause : pauses) {
    if (status.ok()) status = pause->CheckHeld();
  }
  for (const auto& pause : pauses) pause->LetGo();
  const absl::Duration stood = absl::FromChrono(TgtdPause::Clock::now() - begun);
  LogInfo("array", "all volumes have stood still for a moment",
          {{"milliseconds", absl::StrCat(absl::ToInt64Milliseconds(stood))},
           {"result", std::string(absl::StatusCodeToString(status.code()))}});
  return status;
}

absl::Status WriteBarrier::TakeTurn() {
  TgtdPause::Clock::time_point next;
  {
    const SteadyLock lock(&mu_);
    const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !taken_; };
    if (!mu_.AwaitUntil(absl::Condition(&free), SteadyDeadline(kTurnTimeout)))
      return absl::AbortedError("other groups of volumes are being snapshotted; try again");
    taken_ = true;
    next = next_;
  }
  // Half a minute or so: kRest times all that I/O can have stood.
  absl::SleepFor(std::max(absl::FromChrono(next - TgtdPause::Clock::now()), absl::ZeroDuration()));
  return absl::OkStatus();
}

void WriteBarrier::LeaveTurn(TgtdPause::Clock::duration stood) {
  const SteadyLock lock(&mu_);
  taken_ = false;
  next_ = TgtdPause::Clock::now() + kRest * stood;
}

}  // namespace lunkeeper
