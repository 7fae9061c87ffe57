#include "base/testing/wall_clock.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>

#include "absl/time/clock.h"

namespace lunkeeper::testing {
namespace {

std::atomic<time_t> ahead_seconds = 0;

}  // namespace

WallClockAhead::WallClockAhead(absl::Duration by) { ahead_seconds = absl::ToInt64Seconds(by); }
WallClockAhead::~WallClockAhead() { ahead_seconds = 0; }

void AwaitAbseilsClock() {
  const auto is_off = [] {
    const absl::Duration off = absl::Now() - absl::FromChrono(std::chrono::system_clock::now());
    return absl::AbsDuration(off) > absl::Minutes(1);
  };
  while (is_off()) absl::SleepFor(absl::Milliseconds(10));
}

bool EndsThoughClockIsSetBack(const std::function<void()>& wait, const std::function<void()>& end) {
  auto waited = std::async(std::launch::async, [&] {
    const WallClockAhead ahead(absl::Hours(1));
    AwaitAbseilsClock();
    wait();
  });
  const bool ended = waited.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  if (!ended) end();
  waited.get();
  AwaitAbseilsClock();
  return ended;
}

}  // namespace lunkeeper::testing

// In place of libc's, for the libraries too.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += lunkeeper::testing::ahead_seconds;
  return result;
}

extern "C" int gettimeofday(timeval* time, void* zone) noexcept {
  const auto result = static_cast<int>(syscall(SYS_gettimeofday, time, zone));
  if (result == 0) time->tv_sec += lunkeeper::testing::ahead_seconds;
  return result;
}
