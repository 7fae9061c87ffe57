#pragma once
// The clock and the threads that a part of the program runs on. Everything runs on RealExecutor(); another
// one can run the same code on one thread, in virtual time, as the failover simulator is to do.
//
// Thread-safe. Nothing fails. It outlives all that it has made.

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace lunkeeper {

// One thread with one piece of work, which has to end by itself; the destructor waits for that.
class Thread {
 public:
  virtual ~Thread() = default;
};

// Wakes a thread that waits for work, or for a length of time, which is the steady clock's. One thread waits.
class Signal {
 public:
  virtual ~Signal() = default;
  // Ends the wait, or else the next one.
  virtual void Set() = 0;
  // True: Set was called since the last wait. False: `time` has passed.
  virtual bool WaitFor(absl::Duration time) = 0;
};

// Executor that run jobs in the order of their arrival. The destructor is a Stop.
class Workers {
 public:
  virtual ~Workers() = default;
  // Never blocks.
  virtual void Post(std::function<void()> job) = 0;
  // Waits for the jobs that run, and drops the others. May be repeated.
  virtual void Stop() = 0;
  // Waits for all jobs. No more are posted from now on.
  virtual void Finish() = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Since some start of its own. It never goes back.
  virtual absl::Duration SteadyNow() const = 0;
  // The time of day, which people may set.
  virtual absl::Time WallNow() const = 0;
  virtual std::unique_ptr<Thread> StartThread(std::function<void()> work) = 0;
  virtual std::unique_ptr<Signal> MakeSignal() = 0;
  virtual std::unique_ptr<Workers> MakeWorkers(size_t count) = 0;
};

Executor& RealExecutor();

}  // namespace lunkeeper
