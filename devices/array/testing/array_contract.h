#pragma once
// What arrays promise of volumes, grants and fences, in one call: each kind of array has a test that makes
// it. Groups, blocks and names have contracts of their own beside this, which need more than an empty array.

#include "devices/array/testing/fence_contract.h"
#include "devices/array/testing/grant_contract.h"
#include "devices/array/testing/modify_contract.h"
#include "devices/array/testing/volume_contract.h"

namespace lunkeeper::testing {

// The array has no volumes and snapshots, and no fence of these nodes. It is left with some volumes.
inline void CheckArray(Array& array, const ContractNodes& nodes) {
  CheckVolumes(array);
  CheckGrants(array, nodes);
  CheckFences(array, nodes);
  CheckModify(array, nodes.a);
}

}  // namespace lunkeeper::testing
