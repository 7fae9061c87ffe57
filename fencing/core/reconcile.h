#pragma once
// Carries one recorded failover on: fence and verify, taint, delete the pods, watch, and take it all back
// when the node has returned clean. Level-triggered: each call looks at what is there and asks for what is
// missing, so that it may be repeated, interrupted and taken over by another replica at any point.

#include "fencing/core/state.h"

namespace lunkeeper::fencing {

void Reconcile(State& state, const NodeId& node);

}  // namespace lunkeeper::fencing
