#pragma once
// What keeps a fault of the observer from becoming an outage of the cluster: a budget of nodes per window,
// and past it a self-test and one node at a time; no more while many nodes are in trouble that is not plainly
// their own death; pause; exemption. Only decisions made by evidence pass here; what has begun is carried on.
// One thread owns it. A new leader counts every open failover as new.

#include <map>
#include <optional>
#include <string>

#include "fencing/core/classify.h"
#include "fencing/core/cluster.h"
#include "fencing/core/evidence.h"
#include "fencing/core/refusal.h"
#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

struct LimitRefusal {
  Refusal reason;
  std::string text;
};

class SafetyLimits {
 public:
  explicit SafetyLimits(const Settings& settings) : settings_(settings) {}

  // An automatic failover of `node` was decided, by us or by another replica. Repeats change nothing.
  void NoteDecision(const NodeId& node, Instant now);
  // What the evidence says of `node` at this tick.
  void NoteVerdict(const NodeId& node, const Classification& verdict, Instant now);
  // What shows that the silence of `node` may be this observer's own fault; empty: nothing.
  std::string SelfTest(const NodeId& node, const Evidence& evidence, Instant now) const;
  // Why `node` may not be failed over now, for what is said of it; empty: it may.
  std::optional<LimitRefusal> RefusalOf(const NodeId& node, const Classification& verdict,
                                        const Cluster& cluster, const Evidence& evidence, Instant now);

 private:
  int NodeBudget(const Evidence& evidence) const;
  bool IsMass(const Evidence& evidence, Instant now);

  const Settings& settings_;
  std::map<NodeId, Instant> decided_;
  std::map<NodeId, Instant> in_trouble_;  // and not dead, when it was last so
};

}  // namespace lunkeeper::fencing
