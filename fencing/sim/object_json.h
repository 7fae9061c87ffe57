#pragma once
// The simulated cluster's objects as the API server writes them: what the controllers and kubelets of the
// world know as plain values. Written from Kubernetes' own reference and not from the code that reads them.
// Pure functions.

#include <string>

#include "fencing/core/types.h"
#include "fencing/kube/json.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

inline constexpr char kFencedTaint[] = "lunkeeper.io/fenced";
inline constexpr char kPluginTaint[] = "lunkeeper.io/plugin-not-ready";
inline constexpr char kOutOfServiceTaint[] = "node.kubernetes.io/out-of-service";
inline constexpr char kMountDeaths[] = "lunkeeper.io/mount-deaths";

kube::Json NodeObject(const Node& node);
kube::Json CsiNodeObject(const Node& node);
kube::Json PodObject(const Pod& pod, bool failed);
// Of a volume that a workload of that name claims.
kube::Json VolumeObject(const PodId& pod, const VolumeId& volume, const ChargedNodes& charged);
// And that of its volume of another driver.
kube::Json ForeignObject(const PodId& pod);
// `clock_error` is the kubelet's machine's.
kube::Json KubeletLeaseObject(WorldTime renewed, Span clock_error);

// "space/name" taken apart.
std::string SpaceOf(const PodId& pod);
std::string NameIn(const PodId& pod);

}  // namespace lunkeeper::fencing::sim
