#include "devices/array/tgt/connection_history.h"

namespace lunkeeper {

void ConnectionHistory::BeginLook(SteadyTime now) {
  period_ = now.time_since_epoch() / kPeriod;
  ++look_;
}

Standing ConnectionHistory::NoteConnection(uint64_t cookie, uint64_t answered) {
  const auto [at, is_new] = known_.try_emplace(cookie);
  Known& known = at->second;
  if (is_new) known.first_look = look_;
  known.last_look = look_;
  if (answered > known.answered && known.last_period != period_) {
    ++known.periods;
    known.last_period = period_;
  }
  known.answered = answered;
  // The one that it is now counts when it is over: a ping comes later in it than what others can ask for.
  const uint32_t now = known.last_period == period_ ? 1 : 0;
  return {.lively = period_ - known.last_period <= 1,
          .periods = known.periods - now,
          .age_looks = look_ - known.first_look};
}

void ConnectionHistory::EndLook() {
  std::erase_if(known_, [this](const auto& each) { return each.second.last_look != look_; });
}

}  // namespace lunkeeper
