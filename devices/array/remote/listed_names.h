#pragma once
// Finds a name in what an array lists, for an agent that is one version older and cannot be asked for it. It
// reads whole lists, and none of them has a volume whose source is still being copied. A function without
// state. Failure: as the lists'.

#include <string>

#include "absl/status/statusor.h"
#include "devices/array/name_index.h"
#include "devices/array/snapshot_groups.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

// As NameIndex::FindNamed, but never ABORTED.
absl::StatusOr<std::string> FindListed(VolumeStore& volumes, SnapshotGroups& groups, NamedKind kind,
                                       const std::string& name);

}  // namespace lunkeeper
