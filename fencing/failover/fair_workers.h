#pragma once
// Workers that serve groups of jobs in turns: next comes the oldest job of a group that has the fewest at
// work. So jobs that all take long delay those of another group by one such job at most, however many wait.
//
// Thread-safe. It outlives its jobs; the destructor is a Stop.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/executor.h"

namespace lunkeeper::fencing {

class FairWorkers {
 public:
  FairWorkers(Executor& executor, size_t count) : workers_(executor.MakeWorkers(count)) {}

  // Never blocks.
  void Post(const std::string& group, std::function<void()> job);
  // Waits for the jobs that run, and drops the others. May be repeated.
  void Stop() { workers_->Stop(); }

 private:
  struct Group {
    std::deque<std::pair<uint64_t, std::function<void()>>> waiting;  // with its number
    int running = 0;
  };
  using Groups = std::map<std::string, Group>;

  void RunNext();
  Groups::iterator NextGroup() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  uint64_t posted_ ABSL_GUARDED_BY(mutex_) = 0;
  Groups groups_ ABSL_GUARDED_BY(mutex_);   // with jobs that wait or run
  const std::unique_ptr<Workers> workers_;  // last: its threads use the others
};

}  // namespace lunkeeper::fencing
