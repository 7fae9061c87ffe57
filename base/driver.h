#pragma once
// The name by which orchestrators know this driver: in CSI, in kubelet's registry, in Kubernetes' objects.

namespace lunkeeper {

inline constexpr char kDriverName[] = "csi.lunkeeper.io";
// CSI 0.3 wants it backwards ("GetPluginInfo": reverse domain name notation).
inline constexpr char kDriverNameV0[] = "io.lunkeeper.csi";

}  // namespace lunkeeper
