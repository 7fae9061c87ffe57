#pragma once
// Reads what the scheduler compares: the labels, taints and room of a Node, and the constraints of a Pod.
// Pure functions of JSON; the results are small, see fencing/core/scheduling.h.

#include "fencing/core/scheduling.h"
#include "fencing/kube/json.h"

namespace lunkeeper::fencing {

Labels ReadLabels(const kube::Json& object);
// Labels, the taints that keep pods out, and what it has for pods. Our own taints and out-of-service are left
// out: no pod is placed on such a node, whatever it tolerates. A cordoned node has a taint, too.
NodeLabels ReadNodeLabels(const kube::Json& node);
// nodeSelector, required node affinity, and tolerations, except those for nodes that are not ready. Of what
// is said about other pods only what is required by host: affinity to pods of its namespace, anti-affinity to
// pods like itself, and topology spread of pods like itself that counts tainted nodes.
Scheduling ReadScheduling(const kube::Json& pod);
// The least that the pod needs in any case.
Resources ReadRequests(const kube::Json& pod);
// The node affinity of a PersistentVolume.
Scheduling ReadPlaces(const kube::Json& volume);

}  // namespace lunkeeper::fencing
