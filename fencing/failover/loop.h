#pragma once
// One thread that runs jobs in the order of their arrival, with ticks between them. Each job gets the time at
// which it arrived, so a job that waited for a busy thread is not mistaken for one that came late. A job
// posted with Wake::kLater does not wake the thread; it runs with the next one that does, or right before the
// next tick. PostJob is thread-safe and never blocks; after Stop it drops its job.

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fencing/failover/clock.h"

namespace lunkeeper::fencing {

enum class Wake { kNow, kLater };

class Loop {
 public:
  using Job = std::function<void(Instant now)>;

  explicit Loop(Executor& executor = RealExecutor()) : executor_(executor), signal_(executor.MakeSignal()) {}
  ~Loop() { Stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void Start(Span every, Job tick) {
    thread_ = executor_.StartThread([this, every, tick = std::move(tick)] { Run(every, tick); });
  }
  // Waits for the jobs that were taken already.
  void Stop() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
      jobs_.clear();
    }
    signal_->Set();
    thread_.reset();
  }
  // Runs `question` as a job, and waits for what it returns. Nullopt: that did not come within two seconds.
  template <class T>
  std::optional<T> AskLoop(std::function<T()> question) {
    auto waiting = std::make_shared<Waiting<T>>();  // shared with the job, which may run when this has ended
    waiting->arrived = executor_.MakeSignal();
    PostJob([waiting, question = std::move(question)](Instant) {
      T answer = question();
      {
        absl::MutexLock lock(&waiting->mutex);
        waiting->answer = std::move(answer);
      }
      waiting->arrived->Set();
    });
    waiting->arrived->WaitFor(absl::Seconds(2));
    absl::MutexLock lock(&waiting->mutex);
    return std::move(waiting->answer);
  }
  void PostJob(Job job, Wake wake = Wake::kNow) {
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      jobs_.emplace_back(NowOn(executor_), std::move(job));
      if (wake == Wake::kLater && jobs_.size() < kMostWaiting) return;
    }
    signal_->Set();
  }

 private:
  using Jobs = std::vector<std::pair<Instant, Job>>;
  template <class T>
  struct Waiting {
    absl::Mutex mutex;
    std::optional<T> answer ABSL_GUARDED_BY(mutex);
    std::unique_ptr<Signal> arrived;
  };
  // Wakes the thread, so that waiting jobs take little memory and do not delay a tick.
  static constexpr size_t kMostWaiting = 500;

  void Run(Span every, const Job& tick) {
    for (Instant next = NowOn(executor_);;) {
      Jobs jobs;
      signal_->WaitFor(ToAbsl(next - NowOn(executor_)));
      {
        absl::MutexLock lock(&mutex_);
        if (stopping_) return;
        jobs.swap(jobs_);
        if (const Instant now = NowOn(executor_); now >= next) {
          jobs.emplace_back(now, tick);
          next = now + every;
        }
      }
      // What a job brought goes with it: the polls of all arrays are much to keep until the last has run.
      for (auto& [at, job] : jobs) std::exchange(job, nullptr)(at);
    }
  }

  Executor& executor_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Jobs jobs_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<Signal> signal_;
  std::unique_ptr<Thread> thread_;
};

}  // namespace lunkeeper::fencing
