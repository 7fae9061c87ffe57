#pragma once
// Slows all I/O of an array down for a while, so that work which has to keep pace with the writers can catch
// up: tgtd is held (tgtd_pause.h) for most of the time, in pauses so short that a command that waits hardly
// notices.
//
// Use from one thread. Failure: none; if tgtd cannot be held, I/O goes on as fast as ever. Killed: as
// TgtdPause.

#include <atomic>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/steady_mutex.h"
#include "devices/array/tgt/tgt_servers.h"
#include "devices/array/tgt/tgtd_pause.h"

namespace lunkeeper {

class WriteThrottle {
 public:
  // `servers` outlives it. I/O goes as fast as ever until StartAfter.
  explicit WriteThrottle(const TgtServers& servers) : servers_(servers) {}
  ~WriteThrottle() { Stop(); }
  WriteThrottle(const WriteThrottle&) = delete;
  WriteThrottle& operator=(const WriteThrottle&) = delete;

  // Once. I/O is slow from `delay` on, unless Stop comes first. It ends by itself after a few seconds.
  void StartAfter(absl::Duration delay);
  // I/O goes as fast as ever, and what has waited got its turn.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  // From StartAfter until it has ended.
  bool IsSlow() const { return slow_; }
  // For how long I/O has stood in all. After Stop.
  TgtdPause::Clock::duration stood() const { return stood_; }
  // For how long I/O then goes on, however long it has taken to hold all: for a ninth of the time in all.
  static absl::Duration RestAfter(absl::Duration stood);

 private:
  void Run(absl::Duration delay);
  // Holds tgtd once. False: it is to stop.
  bool PauseOnce();
  // False: it is to stop.
  bool Wait(absl::Duration time) ABSL_LOCKS_EXCLUDED(mu_);

  const TgtServers& servers_;
  std::thread thread_;
  std::atomic<bool> slow_ = false;
  TgtdPause::Clock::duration stood_{};
  SteadyMutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lunkeeper
