#pragma once
// The name by which orchestrators know this driver: in CSI, in kubelet's registry, in Kubernetes' objects.

namespace lunkeeper {

inline constexpr char kDriverName[] = "csi.lunkeeper.io";

}  // namespace lunkeeper
