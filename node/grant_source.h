#pragma once
// The source of this node's grants when the orchestrator brings none: the controllers, over their
// authenticated channel, or an array in the same process. Thread-safe; every call may be repeated, and ends
// at its deadline. Failure: as devices/array says of Acquire and Release. An Acquire that failed may still
// lead to a grant, if only the answer was lost: see LeftoverSweeper.

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/array.h"
#include "devices/datapath/initiator.h"

namespace lunkeeper {

struct HeldGrant {
  VolumeId volume;
  Generation generation = 0;
  Iqn target;
  GrantOwner owner = GrantOwner::kNode;
};

// No two grants share a target. Of a device that its data path has left the target is not known.
inline bool MayUse(const Device& device, const HeldGrant& grant) {
  return device.volume == grant.volume && (device.target.value().empty() || device.target == grant.target);
}

// What the node will do with the volume.
struct WantedUse {
  Access access = Access::kExclusive;
  VolumeMode mode = VolumeMode::kAny;
};

class GrantSource {
 public:
  virtual ~GrantSource() = default;

  // This node's grant of the volume, after waiting for other nodes' to end for at most `wait`.
  virtual absl::StatusOr<Grant> Acquire(const VolumeId& volume, const WantedUse& use,
                                        absl::Duration wait) = 0;
  // Releases the grant of that generation, if Acquire took it: never one that the orchestrator took for this
  // node, and never a newer one. OK when there is none.
  virtual absl::Status Release(const VolumeId& volume, Generation generation, absl::Time deadline) = 0;
  // This node's grants, also the ones that the orchestrator took for it: of one volume, or of all if `volume`
  // is empty.
  virtual absl::StatusOr<std::vector<HeldGrant>> Held(const VolumeId& volume, absl::Time deadline) = 0;
};

}  // namespace lunkeeper
