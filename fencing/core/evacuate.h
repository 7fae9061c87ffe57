#pragma once
// The steps of a failover that make a node's pods go. Level-triggered: each sends what is missing through the
// outbox and returns. Nothing fails.

#include "fencing/core/assessment.h"

namespace lunkeeper::fencing {

// Begins with the arrays that have confirmed, while others are still being fenced. Keeps the node tainted.
void DeleteFencedPods(State& state, const Assessment& seen);
// Of a graceful move, until its first fence.
void AskPodsToLeave(State& state, const Assessment& seen);
// Pods whose volumes are fenced, and which nobody moves: left alone until another node asked for a volume, or
// opted out since. What they have here fails for good, and the node is not clean before they end.
void AskCutOffPodsToLeave(State& state, const Assessment& seen);

}  // namespace lunkeeper::fencing
