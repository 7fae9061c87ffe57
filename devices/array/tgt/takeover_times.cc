// Durations come from the steady clock. The wall clock, which an operator compares with other logs, is read
// once, when the array is served.
#include "devices/array/tgt/takeover_times.h"

#include "absl/time/clock.h"

namespace lunkeeper {

// One that gave the array away and takes it again, as nobody else has, has had it all the time.
GatewayState DescribeTaken(const std::optional<GatewayRecord>& before, const GatewayRecord& next,
                           absl::Duration stood_still) {
  GatewayState state = {.host = next.host, .epoch = next.epoch, .change = GatewayChange::kFirst};
  if (!before) return state;
  const std::string released = ParseReleased(*before);
  const bool same = before->holder == next.holder || released == next.holder;
  state.before = before->host;
  state.change = same               ? GatewayChange::kRestart
                 : released.empty() ? GatewayChange::kTakeover
                                    : GatewayChange::kHandover;
  if (state.change == GatewayChange::kTakeover) state.phases.push_back({"silence", stood_still});
  return state;
}

void TakeoverTimes::EndPhase(const std::string& name) {
  const absl::MutexLock lock(&mu_);
  const Clock::time_point now = Clock::now();
  state_.phases.push_back({name, absl::FromChrono(now - last_)});
  last_ = now;
}

void TakeoverTimes::NoteServing() {
  const absl::MutexLock lock(&mu_);
  state_.since = absl::Now();
  serving_ = Clock::now();
}

std::optional<GatewayState> TakeoverTimes::FindState() const {
  const absl::MutexLock lock(&mu_);
  if (!serving_) return std::nullopt;
  GatewayState state = state_;
  state.served_for = absl::FromChrono(Clock::now() - *serving_);
  return state;
}

}  // namespace lunkeeper
