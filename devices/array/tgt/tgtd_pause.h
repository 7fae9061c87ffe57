#pragma once
// Holds all of tgtd for a moment. While it is held no command of any initiator begins or is answered, on any
// volume; what a thread of tgtd does in the kernel, such as a write or a flush, ends there and is answered
// afterwards. So whatever depends on an answer waits too, whichever node it runs on.
//
// tgtd goes on when the object dies, and also if this program is killed: a child process of its own lets it
// go then, and at the latest kLongestPause after HoldTgtd, whatever this program does. An initiator notices
// nothing but slow answers: it pings every few seconds. For one thread. Needs tgtd's user, and no capability.

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace lunkeeper {

// Below the 2 s after which a node leaves a silent portal, and the 2.5 s after which its heartbeats count as
// missing.
constexpr absl::Duration kLongestPause = absl::Seconds(1);

class TgtdPause {
 public:
  // `handle`: a pidfd of tgtd. UNAVAILABLE: tgtd has died, or a thread of it does not stop in time. It goes
  // on then.
  static absl::StatusOr<std::unique_ptr<TgtdPause>> HoldTgtd(pid_t tgtd, UniqueFd handle);
  ~TgtdPause() { LetGo(); }
  TgtdPause(const TgtdPause&) = delete;
  TgtdPause& operator=(const TgtdPause&) = delete;

  using Clock = std::chrono::steady_clock;
  // Until when it certainly lasts. Work inside ends before that.
  Clock::time_point end() const { return end_; }
  // OK: tgtd has been held from HoldTgtd until now. UNAVAILABLE: it has not, or nobody can tell.
  absl::Status CheckHeld() const;
  // Lets tgtd go on. Once is enough.
  void LetGo();

 private:
  TgtdPause(pid_t tgtd, UniqueFd handle) : tgtd_(tgtd), handle_(std::move(handle)) {}
  absl::Status StartGuard();
  absl::Status StopTgtd();

  const pid_t tgtd_;
  const UniqueFd handle_;
  Clock::time_point begun_, end_;
  pid_t guard_ = 0;  // the child that lets tgtd go; 0: it has been collected
};

}  // namespace lunkeeper
