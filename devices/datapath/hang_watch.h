#pragma once
// Ends a worker in which a thread computes for ever, as a crash of that thread: so the volume that it works
// on is marked (crash_marks.h), and its request is not given to one worker after another without bound.
//
// Counted in the thread's own processor time: a machine that is busy, asleep or stopped looks like no hang. A
// thread that waits is left to the supervisor (WorkerProcess::IsHung), which blames no volume.
//
// One for each thread, used on that thread alone.

#include <signal.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lunkeeper {

class HangWatch {
 public:
  // A round of an event loop takes milliseconds.
  static constexpr std::chrono::milliseconds kLongestRound{1000};

  // `rounds` rises with each of the calling thread's rounds, and outlives this. One that takes `longest` of
  // the processor's time ends the process by SIGABRT, at the latest after twice as long.
  explicit HangWatch(const std::atomic<uint64_t>& rounds, std::chrono::milliseconds longest = kLongestRound);
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

 private:
  static void OnTick(int number, siginfo_t* info, void* context);

  static inline thread_local HangWatch* current_ = nullptr;

  const std::atomic<uint64_t>& rounds_;
  uint64_t last_ = UINT64_MAX;  // at the tick before; never so many
  timer_t timer_ = {};
  bool ticks_ = false;
};

}  // namespace lunkeeper
