#pragma once
// Where a node's heartbeat LUNs are, from the controllers. Thread-safe. Failure: as ReplicaTable::CallAny.

#include "fencing/agent/replica_table.h"
#include "fencing/agent/storage_heartbeats.h"

namespace lunkeeper {

// `replicas` outlives the result.
HeartbeatLunAccess AskForHeartbeatLun(ReplicaTable& replicas, const NodeId& node,
                                      Executor& executor = RealExecutor());

}  // namespace lunkeeper
