#pragma once
// The arrays of a hollow cluster, as a controller sees them: each volume is granted to its pod's node, and
// the node's I/O continues as long as it sends heartbeats. They live in the controller's process and answer
// at once, so the benchmark leaves out the network between controller and agents. Thread-safe.

#include <functional>
#include <memory>

#include "devices/array/arrays.h"
#include "fencing/scale/hollow_cluster.h"

namespace lunkeeper::fencing {

// `commands`: how many a node has completed so far, by its number; called from any thread.
std::unique_ptr<lunkeeper::Arrays> MakeHollowArrays(const HollowClusterSize& size,
                                                    std::function<uint64_t(int node)> commands);

}  // namespace lunkeeper::fencing
