#pragma once
// Runs in which one thing happens that was chosen, in place of faults from the seed, and has to be over in a
// time that was promised, or must do no harm. The world is whole and calm before, and mended afterwards. One
// thread.

#include "fencing/sim/faults.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

// A node dies, perhaps the leader's own. `beside_cut`: a replica that does not lead is cut off.
void RunPlain(World& world, Faults& faults, bool beside_cut);
// The leader is cut off from an array, where there are two, or else from some nodes, and stays so: another
// one has to lead, and then a node dies.
void RunOutseen(World& world, Faults& faults);
// Where Kubernetes is trusted, a node that it alone has lost is failed over although its pods write on.
void RunTrusting(World& world, Faults& faults);
// Nodes ask for volumes that no pod of theirs uses, and then the node that has one dies.
void RunStrangers(World& world, Faults& faults);
// While the NodeFence of a node is written that leader and arrays do not hear, another replica hears it
// again, or a person pauses failover: it must not be fenced.
void RunSlowRecord(World& world, Faults& faults);
// A volume kills each machine which mounts it.
void RunPoisoned(World& world, Faults& faults);

}  // namespace lunkeeper::fencing::sim
