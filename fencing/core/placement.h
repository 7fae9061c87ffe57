#pragma once
// Whether another replica is better placed to lead. The leader asks the others each second what they see. It
// yields if one of them sees more for three seconds: more arrays or more nodes, and of neither less. Replicas
// of which each sees something that the other does not are alike, so that leadership never goes back and
// forth between them. A leader that cannot act sees nothing. One thread owns it; nothing fails.

#include <optional>
#include <string>
#include <vector>

#include "fencing/core/action.h"
#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

class Placement {
 public:
  explicit Placement(const Settings& settings) : settings_(settings) {}

  // The answers to `call`, of replicas that could lead, and what this replica sees now.
  void NoteSights(const AskReplicas& call, const ReplicaSight& own, const std::vector<ReplicaSight>& others,
                  Instant now);
  // At each tick: whether this replica leads, and whether a failover is under way.
  void NoteTick(bool leads, bool busy, Instant now);
  // Whom it should let lead, now; null: nobody.
  const ReplicaSight* Successor(Instant now) const;
  void NoteYield(Instant now) { yielded_at_ = now; }
  // Why that one: for people.
  std::string WhyYield() const;

 private:
  const Settings& settings_;
  ReplicaSight own_;
  std::optional<ReplicaSight> better_;  // by the last answers
  // Since when each answer has named one that sees more; until when that is known.
  std::optional<Instant> better_since_, better_until_;
  std::optional<Instant> busy_since_, yielded_at_;
};

}  // namespace lunkeeper::fencing
