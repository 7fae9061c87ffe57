#pragma once
// Advances one recorded failover: fence and verify, taint, delete the pods, watch the replacements, and undo
// it all when the node has returned clean. Level-triggered: each call compares what is there with what is
// wanted and asks for what is missing. So it may be repeated, interrupted, and taken over by another replica
// at any point. One thread: the core's. Nothing fails; what must never happen stops the process (LK_CHECK).

#include "fencing/core/state.h"

namespace lunkeeper::fencing {

void Reconcile(State& state, const NodeId& node);

}  // namespace lunkeeper::fencing
