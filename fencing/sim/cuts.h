#pragma once
// Faults that cut paths of the network. Each strikes at once, tells the checker what is wrong with which node
// now, and returns how to mend it. One thread.

#include <functional>

#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

using Mend = std::function<void()>;

Mend CutBoth(World& world, Endpoint a, Endpoint b, bool one_way);
// A node from all that there is of a kind.
Mend CutNode(World& world, Machine& machine, bool controllers, bool api, bool arrays, bool one_way);
// A machine from everybody, with what runs on it.
Mend CutOff(World& world, Machine& machine);
// Of one array, for one node or, with null, for all: its agent answers all the same.
Mend CutPortal(World& world, ArrayModel& array, Machine* only);

}  // namespace lunkeeper::fencing::sim
