#pragma once
// Reads what the scheduler compares: the labels and taints of a Node, and the constraints of a Pod. Pure
// functions of JSON; the results are small, see fencing/core/scheduling.h.

#include "fencing/core/scheduling.h"
#include "fencing/kube/json.h"

namespace lunkeeper::fencing {

// Labels, and the taints that keep pods out. Our own taints and out-of-service are left out: no pod is placed
// on such a node, whatever it tolerates. A cordoned node has a taint, too.
NodeLabels ReadNodeLabels(const kube::Json& node);
// nodeSelector, required node affinity, and tolerations, except those for nodes that are not ready. Of pod
// anti-affinity the most usual: required, by host, to pods like itself.
Scheduling ReadScheduling(const kube::Json& pod);
// The node affinity of a PersistentVolume.
Scheduling ReadPlaces(const kube::Json& volume);

}  // namespace lunkeeper::fencing
