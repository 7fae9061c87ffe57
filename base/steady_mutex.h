#pragma once
// An absl::Mutex whose timed waits go by the steady clock. Abseil's own end at a time of the wall clock: set
// back by an hour it makes them an hour longer, set forward it ends them at once.
//
//   SteadyLock lock(&mutex_);
//   if (!mutex_.AwaitUntil(absl::Condition(&ready_), SteadyDeadline(absl::Seconds(10)))) return …;
//
// Thread-safe. As with absl::Mutex nobody signals anything: each unlock evaluates the conditions of all
// threads that wait, and wakes the ones whose condition holds. So a condition reads only what the mutex
// guards, or what somebody changes who then locks and unlocks it once. It takes no lock and has no effect.

#include <condition_variable>
#include <mutex>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/steady_deadline.h"

namespace lunkeeper {

class ABSL_LOCKABLE SteadyMutex {
 public:
  SteadyMutex() = default;
  SteadyMutex(const SteadyMutex&) = delete;
  SteadyMutex& operator=(const SteadyMutex&) = delete;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void unlock() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // Unlocked meanwhile, and locked again at the end. False: `condition` does not hold, and it is too late.
  bool AwaitUntil(const absl::Condition& condition, SteadyDeadline deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this);
  // However long it takes.
  void Await(const absl::Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this);
  // For clang, in a condition.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  struct Waiter {
    const absl::Condition& condition;
    std::condition_variable wake = {};
  };
  void WakeReady();

  std::mutex mutex_;
  std::vector<Waiter*> waiters_;  // with mutex_; each is on the stack of its thread
};

class ABSL_SCOPED_LOCKABLE SteadyLock {
 public:
  explicit SteadyLock(SteadyMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(*mutex) {
    mutex_.lock();
  }
  ~SteadyLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  SteadyLock(const SteadyLock&) = delete;
  SteadyLock& operator=(const SteadyLock&) = delete;

 private:
  SteadyMutex& mutex_;
};

}  // namespace lunkeeper
