#pragma once
// Repeats a piece of work on a thread of its own: first at once, then `every` after the end of each run.
//
//   Periodic sweep(absl::Seconds(5), [this] { Sweep(); });
//
// The work must end by itself within a bounded time: the destructor waits for a run in progress, and joins
// the thread. Wake may be called from any thread.

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/steady_signal.h"

namespace lunkeeper {

class Periodic {
 public:
  Periodic(absl::Duration every, std::function<void()> work)
      : every_(every), work_(std::move(work)), thread_([this] { Run(); }) {}
  ~Periodic() {
    stopping_ = true;
    signal_.Set();
    thread_.join();
  }
  Periodic(const Periodic&) = delete;
  Periodic& operator=(const Periodic&) = delete;

  // Runs the work once more without waiting for its time.
  void Wake() { signal_.Set(); }

 private:
  void Run() {
    for (;;) {
      work_();
      signal_.WaitFor(every_);
      if (stopping_) return;
    }
  }

  const absl::Duration every_;
  const std::function<void()> work_;
  SteadySignal signal_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lunkeeper
