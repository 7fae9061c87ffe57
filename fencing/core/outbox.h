#pragma once
// The actions of one step, and the calls that are not answered yet. A call is known by what it does and to
// what, so that a level-triggered core may ask for it at every step and it is sent once; a call that failed
// is sent again after a pause, and one that is never answered after a longer one. One thread owns it.

#include <map>
#include <optional>
#include <vector>

#include "fencing/core/action.h"
#include "fencing/core/call_key.h"
#include "fencing/core/event.h"
#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

class Outbox {
 public:
  explicit Outbox(const Settings& settings) : settings_(settings) {}

  // Sends `what`, unless a call of this key waits for its answer, or for its effect to be seen, or has just
  // failed. True: it was sent.
  bool CallOnce(const CallKey& key, decltype(Action::what) what, Instant now);
  // True at most once in `period` for a key: for what nobody answers and is to be repeated.
  bool TakeTurn(const CallKey& key, Span period, Instant now);
  // Sends what nobody answers.
  void SendAction(decltype(Action::what) what) { actions_.push_back({0, std::move(what)}); }
  // The action that this answers, once; none: it was given up long ago.
  std::optional<Action> TakeAnswered(const Done& done, Instant now);
  bool IsWaiting(const CallKey& key) const;
  void PruneCalls(Instant now);
  // Calls that were not answered in time. What is answered after all is not taken any more.
  std::vector<Action> TakeGivenUp() { return std::exchange(given_up_, {}); }

  std::vector<Action> TakeActions() { return std::exchange(actions_, {}); }

 private:
  struct PendingCall {
    uint64_t id = 0;                  // 0: answered
    std::optional<Instant> again_at;  // until then it is not sent again
    int tries = 0;                    // in a row, each of which was paused longer for
  };

  void GiveUp(uint64_t id);

  const Settings& settings_;
  uint64_t last_id_ = 0;
  std::vector<Action> actions_, given_up_;
  std::map<CallKey, PendingCall> keys_;
  std::map<uint64_t, std::pair<CallKey, Action>> calls_;
};

}  // namespace lunkeeper::fencing
