#pragma once
// From the domain to CSI responses. Pure functions, thread-safe; they fail only where they say so.

#include <string>

#include "absl/status/status.h"
#include "csi/v1/csi.pb.h"
#include "devices/array/array.h"

namespace lunkeeper {

void FillVolume(const Volume& volume, csi::v1::Volume* out);
void FillSnapshot(const Snapshot& snapshot, csi::v1::Snapshot* out);
// For CreateSnapshot. ABORTED: it is still being copied, and its id may not be given out yet.
absl::Status FillTaken(const Snapshot& snapshot, csi::v1::Snapshot* out);
void FillGroup(const SnapshotGroup& group, csi::v1::VolumeGroupSnapshot* out);
void FillCapacity(const PoolCapacity& pool, csi::v1::GetCapacityResponse* out);
void FillCapabilities(csi::v1::ControllerGetCapabilitiesResponse* out);

}  // namespace lunkeeper
