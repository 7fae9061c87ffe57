#pragma once
// All volumes and all snapshots of some arrays, for an operator's list. Thread-safe. An array that fails is
// named with its reason, and the others are listed.

#include <vector>

#include "devices/array/arrays.h"
#include "plugin/admin.pb.h"

namespace lunkeeper {

void ListAllVolumes(const std::vector<NamedArray>& arrays, admin::v1::ListVolumesResponse& response);
void ListAllSnapshots(const std::vector<NamedArray>& arrays, admin::v1::ListSnapshotsResponse& response);

}  // namespace lunkeeper
