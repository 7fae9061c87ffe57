#pragma once
// Gets a node's grants from the controllers, over the coordinator service. Thread-safe. A call that a replica
// does not answer goes to the next one until the deadline; an answer, good or bad, is final. Failure, beyond
// what node/grant_source.h says: UNAVAILABLE, no replica answered (the message names their addresses);
// UNAUTHENTICATED and PERMISSION_DENIED, the controllers do not accept this node's token.

#include <memory>

#include "fencing/agent/replica_table.h"
#include "node/grant_source.h"

namespace lunkeeper {

// `replicas` outlives it.
std::unique_ptr<GrantSource> MakeCoordinatorGrantSource(ReplicaTable& replicas, const NodeId& node,
                                                        Executor& executor = RealExecutor());

}  // namespace lunkeeper
