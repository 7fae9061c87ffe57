#pragma once
// What `lunkeeper status` says of failover: this replica's part, the safety limits, each node's
// classification, each NodeFence, each array that was removed. Every replica classifies; the leader acts.
// Pure functions.

#include <string>
#include <vector>

#include "fencing/core/core.h"
#include "fencing/failover/array_uses.h"

namespace lunkeeper::fencing {

// `missing`: the kinds that are not watched yet.
std::vector<std::string> StatusLines(const Core& core, const std::string& missing);
// Of an array that was removed: which nodes have something of it left.
std::string RemovedArrayLine(const std::string& array, const std::vector<VolumeUse>& uses);

}  // namespace lunkeeper::fencing
