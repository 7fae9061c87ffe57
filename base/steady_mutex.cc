#include "base/steady_mutex.h"

namespace lunkeeper {

void SteadyMutex::lock() { mutex_.lock(); }

void SteadyMutex::unlock() {
  WakeReady();
  mutex_.unlock();
}

bool SteadyMutex::AwaitUntil(const absl::Condition& condition, SteadyDeadline deadline) {
  if (condition.Eval()) return true;
  WakeReady();  // others, by what this thread has changed since it locked
  Waiter self{condition};
  waiters_.push_back(&self);
  std::unique_lock lock(mutex_, std::adopt_lock);
  const bool holds = self.wake.wait_until(lock, deadline.end(), [&] { return condition.Eval(); });
  lock.release();  // its owner is the caller
  std::erase(waiters_, &self);
  return holds;
}

void SteadyMutex::Await(const absl::Condition& condition) {
  while (!AwaitUntil(condition, SteadyDeadline(absl::InfiniteDuration()))) {
  }
}

// While it is locked: a waiter may be gone as soon as another thread has the mutex.
void SteadyMutex::WakeReady() {
  for (Waiter* const waiter : waiters_)
    if (waiter->condition.Eval()) waiter->wake.notify_one();
}

}  // namespace lunkeeper
