// A call passes through three states, by its key:
//
//   free ──CallOnce──► waiting ──answered well──► free
//    ▲                    │ └──failed, or a deletion──► paused for `retry`
//    └──answer_timeout────┘                                │
//    └─────────────────────────────────────────────────────┘
//
// An answer that comes after answer_timeout finds no call, and changes nothing: its effect will be seen.

#include "fencing/core/outbox.h"

#include <utility>

namespace lunkeeper::fencing {

bool Outbox::CallOnce(const CallKey& key, decltype(Action::what) what, Instant now) {
  auto& state = keys_[key];
  if (now < state.again_at) return false;
  if (state.id != 0) calls_.erase(state.id);
  state = {++last_id_, now + settings_.answer_timeout};
  actions_.push_back({state.id, std::move(what)});
  calls_.emplace(state.id, std::pair(key, actions_.back()));
  return true;
}

bool Outbox::TakeTurn(const CallKey& key, Span period, Instant now) {
  auto& state = keys_[key];
  if (now < state.again_at) return false;
  state.again_at = now + period;
  return true;
}

std::optional<Action> Outbox::TakeAnswered(const Done& done, Instant now) {
  const auto found = calls_.find(done.action);
  if (found == calls_.end()) return std::nullopt;
  auto action = std::move(found->second.second);
  // A deletion is soon seen; until then it is not asked for again. The effect of other calls is in the
  // answer.
  const bool seen = done.outcome == Outcome::kOk && !std::holds_alternative<DeletePod>(action.what);
  keys_[found->second.first] = {0, seen ? now : now + settings_.retry};
  calls_.erase(found);
  return action;
}

bool Outbox::IsWaiting(const CallKey& key) const {
  const auto found = keys_.find(key);
  return found != keys_.end() && found->second.id != 0;
}

void Outbox::PruneCalls(Instant now) {
  std::erase_if(keys_, [&](const auto& entry) {
    if (now < entry.second.again_at) return false;
    calls_.erase(entry.second.id);
    return true;
  });
}

}  // namespace lunkeeper::fencing
