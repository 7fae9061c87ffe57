#pragma once
// How a controller asks the other replicas: by Hears (fencing/protocol/coordinator.proto), over connections
// that stay open. A replica that is too old to know the question refuses it.

#include <cstdint>

#include "fencing/agent/replicas.h"
#include "fencing/failover/replica_poll.h"

namespace lunkeeper {

// `port` is where this replica serves nodes: the others tell them.
fencing::ListAskedReplicas AskOverGrpc(ReplicaOptions options, uint16_t port);

}  // namespace lunkeeper
