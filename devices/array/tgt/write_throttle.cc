#include "devices/array/tgt/write_throttle.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"

namespace lunkeeper {
namespace {

// A command waits for one pause, and meets the next one only if it takes longer than the time between. At a
// ninth of the speed a disk catches up with writers that keep it busy; at a fifth it often did not.
constexpr absl::Duration kPause = absl::Milliseconds(80);
constexpr int kPausesToRest = 8;
// To write what such writers have left in memory, and then less and less.
constexpr absl::Duration kLongestSlow = absl::Seconds(8);

}  // namespace

// With many tgtds, or tgtds of many threads, it takes longer until all stand than they are held then.
absl::Duration WriteThrottle::RestAfter(absl::Duration stood) {
  return std::max(stood, kPause) / kPausesToRest;
}

void WriteThrottle::StartAfter(absl::Duration delay) {
  slow_ = true;
  thread_ = std::thread([this, delay] { Run(delay); });
}

void WriteThrottle::Stop() {
  if (!thread_.joinable()) return;
  {
    const SteadyLock lock(&mu_);
    stop_ = true;
  }
  thread_.join();
}

void WriteThrottle::Run(absl::Duration delay) {
  const bool begin = Wait(delay);
  const auto begun = TgtdPause::Clock::now();
  const auto end = begun + absl::ToChronoNanoseconds(kLongestSlow);
  while (begin && PauseOnce() && TgtdPause::Clock::now() < end) {
  }
  slow_ = false;
  if (begin)
    LogInfo("array", "all volumes were slowed down, for a snapshot group to keep pace with what is written",
            {{"milliseconds",
              absl::StrCat(absl::ToInt64Milliseconds(absl::FromChrono(TgtdPause::Clock::now() - begun)))}});
}

bool WriteThrottle::PauseOnce() {
  const auto begun = TgtdPause::Clock::now();
  {
    const auto pauses = servers_.PauseTgtds();
    Wait(pauses.ok() ? kPause : absl::ZeroDuration());
  }
  const auto stood = TgtdPause::Clock::now() - begun;
  stood_ += stood;
  // Also at the end: what has waited gets its turn before a write barrier holds tgtd again.
  absl::SleepFor(RestAfter(absl::FromChrono(stood)));
  return Wait(absl::ZeroDuration());
}

bool WriteThrottle::Wait(absl::Duration time) {
  const SteadyLock lock(&mu_);
  return !mu_.AwaitUntil(absl::Condition(&stop_), SteadyDeadline(time));
}

}  // namespace lunkeeper
