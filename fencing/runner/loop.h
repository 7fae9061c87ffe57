#pragma once
// One thread that does one job after another, in the order in which they came, each with the time of its
// arrival: a job that waited while the thread was busy is not mistaken for one that came late. Ticks come
// between them. Post is thread-safe and never blocks; after Stop it drops what it is given.

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "fencing/runner/clock.h"

namespace lunkeeper::fencing {

class Loop {
 public:
  using Job = std::function<void(Millis now)>;

  Loop() = default;
  ~Loop() { Stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void Start(Millis every, Job tick) {
    thread_ = std::thread([this, every, tick = std::move(tick)] { Run(every, tick); });
  }
  // Ends after the job in progress.
  void Stop() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
      jobs_.clear();
    }
    if (thread_.joinable()) thread_.join();
  }
  void Post(Job job) {
    absl::MutexLock lock(&mutex_);
    if (!stopping_) jobs_.emplace_back(MonotonicNow(), std::move(job));
  }

 private:
  using Jobs = std::vector<std::pair<Millis, Job>>;

  void Run(Millis every, const Job& tick) {
    for (Millis next = MonotonicNow();;) {
      Jobs jobs;
      {
        absl::MutexLock lock(&mutex_);
        const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !jobs_.empty(); };
        mutex_.AwaitWithTimeout(absl::Condition(&due), absl::Milliseconds(next - MonotonicNow()));
        if (stopping_) return;
        jobs.swap(jobs_);
        if (const Millis now = MonotonicNow(); now >= next) {
          jobs.emplace_back(now, tick);
          next = now + every;
        }
      }
      for (auto& [at, job] : jobs) job(at);
    }
  }

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Jobs jobs_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace lunkeeper::fencing
