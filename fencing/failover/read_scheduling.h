#pragma once
// Reads what the scheduler goes by: a Node as a place, and what a Pod asks of its place. Pure functions from
// JSON, kept small: see fencing/core/scheduling.h.

#include "fencing/core/scheduling.h"
#include "fencing/kube/json.h"

namespace lunkeeper::fencing {

// Labels, and the taints that keep pods out but for our own and out-of-service, which no toleration helps
// against. A cordoned node has a taint too.
NodeLabels ReadNodeLabels(const kube::Json& node);
// nodeSelector, required node affinity, and tolerations but for those of a node that is not ready.
Scheduling ReadScheduling(const kube::Json& pod);

}  // namespace lunkeeper::fencing
