#include "devices/array/tgt/write_throttle.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"

namespace lunkeeper {
namespace {

// A command waits for one pause, and meets the next one only if it takes longer than the time between. A
// fifth of the speed is enough for the disk to catch up with writers that keep it busy.
constexpr absl::Duration kPause = absl::Milliseconds(80);
constexpr int kPausesToRest = 4;
constexpr absl::Duration kLongestSlow = absl::Seconds(3);

}  // namespace

// With many tgtds, or tgtds of many threads, it takes longer until all stand than they are held then.
absl::Duration WriteThrottle::RestAfter(absl::Duration stood) {
  return std::max(stood, kPause) / kPausesToRest;
}

void WriteThrottle::Start() {
  slow_ = true;
  thread_ = std::thread([this] { Run(); });
}

void WriteThrottle::Stop() {
  if (!thread_.joinable()) return;
  {
    const absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  thread_.join();
}

void WriteThrottle::Run() {
  const auto begun = TgtdPause::Clock::now();
  const auto end = begun + absl::ToChronoNanoseconds(kLongestSlow);
  while (PauseOnce() && TgtdPause::Clock::now() < end) {
  }
  slow_ = false;
  LogInfo("array", "all volumes were slowed down, for a snapshot group to keep pace with what is written",
          {{"milliseconds",
            absl::StrCat(absl::ToInt64Milliseconds(absl::FromChrono(TgtdPause::Clock::now() - begun)))}});
}

bool WriteThrottle::PauseOnce() {
  const auto begun = TgtdPause::Clock::now();
  bool go_on = false;
  if (const auto pauses = servers_.PauseTgtds(); pauses.ok()) go_on = Wait(kPause);
  const auto stood = TgtdPause::Clock::now() - begun;
  stood_ += stood;
  // Also at the end: what has waited gets its turn before a write barrier holds tgtd again.
  absl::SleepFor(RestAfter(absl::FromChrono(stood)));
  return go_on;
}

bool WriteThrottle::Wait(absl::Duration time) {
  const absl::MutexLock lock(&mu_);
  return !mu_.AwaitWithTimeout(absl::Condition(&stop_), time);
}

}  // namespace lunkeeper
