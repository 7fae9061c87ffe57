#pragma once
// From evidence to a recorded decision. Level-triggered: the leader's core calls these for each node at each
// tick, and they send what is missing through the outbox. Nothing fails: a lost call is made again.

#include "fencing/core/state.h"

namespace lunkeeper::fencing {

// Records a NodeFence where there is none and one is due: by evidence and past the limits, by an
// administrator's taint, on demand for a volume, or because the array has a fence that nobody recorded.
void Decide(State& state, const NodeId& node, Classification classification);

// Removes taints whose NodeFence is gone, or is of another instance.
void SweepTaints(State& state);

}  // namespace lunkeeper::fencing
