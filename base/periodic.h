#pragma once
// Repeats a piece of work on a thread of its own: first after `wait`, which is nothing for most, then `every`
// after the end of each run.
//
//   Periodic sweep(absl::Seconds(5), [this] { Sweep(); });
//
// The work must end by itself within a bounded time: the destructor waits for a run in progress, and joins
// the thread. Wake may be called from any thread.

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "base/executor.h"

namespace lunkeeper {

class Periodic {
 public:
  Periodic(absl::Duration every, std::function<void()> work, Executor& executor = RealExecutor(),
           absl::Duration wait = absl::ZeroDuration())
      : wait_(wait),
        every_(every),
        work_(std::move(work)),
        signal_(executor.MakeSignal()),
        thread_(executor.StartThread([this] { Run(); })) {}
  ~Periodic() {
    stopping_ = true;
    signal_->Set();
    thread_.reset();
  }
  Periodic(const Periodic&) = delete;
  Periodic& operator=(const Periodic&) = delete;

  // Runs the work once more without waiting for its time.
  void Wake() { signal_->Set(); }

 private:
  void Run() {
    if (wait_ > absl::ZeroDuration()) {
      signal_->WaitFor(wait_);
      if (stopping_) return;
    }
    for (;;) {
      work_();
      signal_->WaitFor(every_);
      if (stopping_) return;
    }
  }

  const absl::Duration wait_, every_;
  const std::function<void()> work_;
  const std::unique_ptr<Signal> signal_;
  std::atomic<bool> stopping_ = false;
  std::unique_ptr<Thread> thread_;  // last: it uses the others
};

}  // namespace lunkeeper
