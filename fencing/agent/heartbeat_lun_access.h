#pragma once
// Where a node's heartbeat LUNs are, from the controllers. Thread-safe. Failure: as Replicas::CallAny.

#include "fencing/agent/replicas.h"
#include "fencing/agent/storage_heartbeats.h"

namespace lunkeeper {

// `replicas` outlives the result.
HeartbeatLunAccess AskForHeartbeatLun(Replicas& replicas, const NodeId& node);

}  // namespace lunkeeper
