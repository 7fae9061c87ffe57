#pragma once
// Repeats a piece of work on a thread of its own: first at once, then `every` after the end of each run.
//
//   Periodic sweep(absl::Seconds(5), [this] { Sweep(); });
//
// The work must end by itself within a bounded time: the destructor waits for a run in progress, and joins
// the thread. Wake may be called from any thread.

#include <functional>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lunkeeper {

class Periodic {
 public:
  Periodic(absl::Duration every, std::function<void()> work)
      : every_(every), work_(std::move(work)), thread_([this] { Run(); }) {}
  ~Periodic() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }
  Periodic(const Periodic&) = delete;
  Periodic& operator=(const Periodic&) = delete;

  // Runs the work once more without waiting for its time.
  void Wake() {
    absl::MutexLock lock(&mutex_);
    woken_ = true;
  }

 private:
  void Run() {
    for (;;) {
      work_();
      absl::MutexLock lock(&mutex_);
      const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || woken_; };
      mutex_.AwaitWithTimeout(absl::Condition(&due), every_);
      if (stopping_) return;
      woken_ = false;
    }
  }

  const absl::Duration every_;
  const std::function<void()> work_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lunkeeper
