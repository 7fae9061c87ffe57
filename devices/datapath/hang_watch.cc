#include "devices/datapath/hang_watch.h"

#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/status/status.h"
#include "base/log.h"

namespace lunkeeper {

HangWatch::HangWatch(const std::atomic<uint64_t>& rounds, std::chrono::milliseconds longest)
    : rounds_(rounds) {
  struct sigaction action = {};
  action.sa_sigaction = &HangWatch::OnTick;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigaction(SIGRTMIN, &action, nullptr);
  current_ = this;
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGRTMIN;
  event._sigev_un._tid = ::gettid();
  constexpr int64_t kMillion = 1'000'000;
  const int64_t ms = longest.count();
  const timespec tick = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * kMillion};
  const itimerspec ticks = {.it_interval = tick, .it_value = tick};
  if (::timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) == 0) {
    ticks_ = true;
    ::timer_settime(timer_, 0, &ticks, nullptr);
  } else {  // the supervisor still sees a hang
    LogWarn("datapath", "a thread is not watched for endless work",
            {{"error", absl::ErrnoToStatus(errno, "making a timer").ToString()}});
  }
}

HangWatch::~HangWatch() {
  if (ticks_) ::timer_delete(timer_);
  current_ = nullptr;
}

// On the watched thread, in the middle of whatever it does. A signal that no timer sent counts for nothing.
void HangWatch::OnTick(int /*number*/, siginfo_t* info, void* /*context*/) {
  HangWatch* const watch = current_;
  if (info->si_code != SI_TIMER || watch == nullptr) return;
  const uint64_t rounds = watch->rounds_.load(std::memory_order_relaxed);
  if (rounds == watch->last_) ::raise(SIGABRT);
  watch->last_ = rounds;
}

}  // namespace lunkeeper
