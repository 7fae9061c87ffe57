#pragma once
// Whether this observer has a way to anybody. A probe that found no way to its node shows nothing of the node
// unless two other machines answer probes meanwhile, since one of these may be the observer's own. Plain
// values; nothing fails.

#include <optional>

#include "fencing/core/types.h"

namespace lunkeeper::fencing {

class ProbeWitnesses {
 public:
  void NoteAnswer(const NodeName& machine, Instant now) {
    if (machine != latest_) other_at_ = latest_at_;
    latest_ = machine;
    latest_at_ = now;
  }
  void NoteNoRoute(Instant now) { no_route_at_ = now; }
  // A probe found no way within `time`, so some other machines have to be probed.
  bool AreWanted(Instant now, Span time) const { return no_route_at_ && now - *no_route_at_ < time; }
  // Two machines answered after `since`, and within `time`.
  bool HaveAnswered(Instant since, Instant now, Span time) const {
    return other_at_ > since && now - *other_at_ < time;
  }

 private:
  NodeName latest_;                                            // that answered
  std::optional<Instant> latest_at_, other_at_, no_route_at_;  // other: the last answer of any other machine
};

}  // namespace lunkeeper::fencing
