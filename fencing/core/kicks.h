#pragma once
// Pods that do not come back by themselves, although their node is well: they are asked to start anew, which
// is called a kick. Level-triggered: the leader's core calls it for each node at each tick. Nothing fails: a
// lost call is made again. What was kicked is known to this replica alone.

#include "fencing/core/state.h"

namespace lunkeeper::fencing {

// Deletes in the ordinary way, by the rules of a move and Settings::kicks in a Settings::kick_window:
// - a pod one of whose devices failed for good ten seconds ago, whatever the pod does. Each pod of
//   a device is asked once in a window, and its successors are not, even if they have no better one;
// - a pod that crash-loops, by Settings::crash_loops: after an outage of the node each pod once; at any time
//   one and not its replacements, until none of them has crash-looped for an hour.
void KickPods(State& state, const NodeId& node, const NodeEvidence& known);

// A kick was not done, and is due again.
void ForgetKick(State& state, const Uid& pod);

}  // namespace lunkeeper::fencing
