#pragma once
// Several arrays as one VolumeStore, SnapshotGroups, SnapshotBlocks and GrantStore, for callers that know
// only ids. A call about a volume or snapshot goes to the array named in its id, whatever the state of the
// others. A list covers all arrays, and fails when one of them cannot be reached. CreateVolume and
// GetCapacity go to the default array. CreateSnapshot and CreateGroup refuse a name that another array has
// (name_search.h). Of an array that was removed (Arrays::IsRemoved), deletes and releases succeed without it,
// so that nothing waits for them; what it has stays there.
//
// Thread-safe, stateless. `arrays` outlives them. There is no router for FenceControl: terms and generations
// count per array, so a caller that fences has to say which array it means (FindArray).

#include <memory>

#include "devices/array/arrays.h"

namespace lunkeeper {

// CreateVolume and GetCapacity: FAILED_PRECONDITION when there are several arrays and none is the default.
std::unique_ptr<VolumeStore> MakeVolumeRouter(Arrays& arrays);
std::unique_ptr<SnapshotGroups> MakeGroupRouter(Arrays& arrays);
std::unique_ptr<SnapshotBlocks> MakeBlockRouter(Arrays& arrays);
std::unique_ptr<GrantStore> MakeGrantRouter(Arrays& arrays);

}  // namespace lunkeeper
