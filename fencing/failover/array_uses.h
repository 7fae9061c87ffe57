#pragma once
// Who uses the volumes of one array, by what a replica knows: nodes that have a device or a grant, and pods
// that run with a claim of it. A pure function of the core's state.

#include <utility>
#include <vector>

#include "fencing/core/state.h"

namespace lunkeeper::fencing {

// One volume on one node.
struct VolumeUse {
  VolumeId volume;
  NodeName node;
  bool has_device = false;  // by the node's last heartbeat
  bool io_ended = false;    // and each of its I/Os there fails, for good
  bool is_silent = false;   // no heartbeat of it comes now, so what it has is not known
  std::vector<std::pair<PodId, Uid>> pods;
};

// In order of volume, then node.
std::vector<VolumeUse> UsesOf(const State& state, const ArrayId& array);

}  // namespace lunkeeper::fencing
