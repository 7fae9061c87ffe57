#pragma once
// A new version is rolled out, as Kubernetes does it: one replica after another, or one node's plugin after
// another. Each ends in order. It returns at once, and goes on in the world's time. One thread.

#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

void RollOutReplicas(World& world);
void RollOutPlugins(World& world);

}  // namespace lunkeeper::fencing::sim
