#pragma once
// Heartbeats over gRPC: a bidirectional stream to each replica.

#include "fencing/agent/heartbeat_connection.h"
#include "fencing/agent/replicas.h"

namespace lunkeeper {

// Of this node. What answers say of other replicas goes to `replicas`, which outlives the result and all that
// it has made.
ListHeartbeatReceivers SendOverGrpc(Replicas& replicas, const NodeId& node);

}  // namespace lunkeeper
