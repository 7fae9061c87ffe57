#pragma once
// What `lunkeeper status` says of failover: this replica's part, the safety limits, each node's
// classification, each NodeFence. Every replica classifies; the leader acts. A pure function of the core's
// state.

#include <string>
#include <vector>

#include "fencing/core/core.h"

namespace lunkeeper::fencing {

// `missing`: the kinds that are not watched yet.
std::vector<std::string> StatusLines(const Core& core, const std::string& missing);

}  // namespace lunkeeper::fencing
