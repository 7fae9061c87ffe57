// A call passes through three states, by its key:
//
//   free ──CallOnce──► waiting ──answered well──► free
//    ▲                    │ └──failed, or a deletion──► paused for `retry`, some each time longer
//    └──answer_timeout────┘                                │
//    └─────────────────────────────────────────────────────┘
//
// An answer that comes after answer_timeout finds no call, and changes nothing: its effect will be seen.

#include "fencing/core/outbox.h"

#include <algorithm>
#include <utility>

namespace lunkeeper::fencing {
namespace {

constexpr int kMostDoublings = 5;  // of the pause: 16 s

// A deletion is soon seen, and then not asked for again. Of one that is not, something stands in its way: a
// webhook, or a right that is missing. The same may refuse the taint of a silent plugin, which can wait.
bool IsPausedLonger(const Action& action, Outcome outcome) {
  const auto* taint = std::get_if<SetTaint>(&action.what);
  return std::holds_alternative<DeletePod>(action.what) ||
         (taint && taint->taint == OurTaint::kPluginNotReady && outcome == Outcome::kFailed);
}

}  // namespace

bool Outbox::CallOnce(const CallKey& key, decltype(Action::what) what, Instant now) {
  auto& state = keys_[key];
  if (now < state.again_at) return false;
  GiveUp(state.id);
  state = {++last_id_, now + settings_.answer_timeout, state.tries};
  actions_.push_back({state.id, std::move(what)});
  calls_.emplace(state.id, std::pair(key, actions_.back()));
  return true;
}

void Outbox::GiveUp(uint64_t id) {
  if (auto call = calls_.extract(id)) given_up_.push_back(std::move(call.mapped().second));
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
  auto& state = keys_[found->second.first];
  if (IsPausedLonger(action, done.outcome)) {
    state = {0, now + (1 << std::min(state.tries, kMostDoublings)) * settings_.retry, state.tries + 1};
  } else {
    // The effect of other calls is in the answer.
    state = {0, done.outcome == Outcome::kOk ? now : now + settings_.retry};
  }
  calls_.erase(found);
  return action;
}

bool Outbox::IsWaiting(const CallKey& key) const {
  const auto found = keys_.find(key);
  return found != keys_.end() && found->second.id != 0;
}

void Outbox::PruneCalls(Instant now) {
  std::erase_if(keys_, [&](const auto& entry) {
    // A call that is not asked for any more is done; its count of tries goes later.
    const auto keep = entry.second.tries == 0 ? Span() : settings_.answer_timeout;
    if (entry.second.again_at && now < *entry.second.again_at + keep) return false;
    GiveUp(entry.second.id);
    return true;
  });
}

}  // namespace lunkeeper::fencing
