#pragma once
// Where this node's grants come from when the orchestrator brings none: the controllers over their
// authenticated channel, or, in one process with it, the array itself. Thread-safe; every call may be
// repeated, and ends at its deadline. Failure: as devices/array/array.h says of Acquire and Release. An
// Acquire that failed may still lead to a grant, when the answer was lost: see
// NodeService::ReturnUnusedGrants.

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/array.h"

namespace lunkeeper {

struct HeldGrant {
  VolumeId volume;
  Generation generation = 0;
  Iqn target;
  GrantOwner owner = GrantOwner::kNode;
};

class GrantSource {
 public:
  virtual ~GrantSource() = default;

  // This node's grant of the volume, after waiting for other nodes' to end for at most `wait`.
  virtual absl::StatusOr<Grant> Acquire(const VolumeId& volume, Access access, absl::Duration wait) = 0;
  // Gives back the grant of that generation that Acquire took; never what the orchestrator took for this
  // node, and never a newer one. OK when there is none.
  virtual absl::Status Release(const VolumeId& volume, Generation generation, absl::Time deadline) = 0;
  // What this node has now, whoever took it: of one volume, or of all if `volume` is empty.
  virtual absl::StatusOr<std::vector<HeldGrant>> Held(const VolumeId& volume, absl::Time deadline) = 0;
};

}  // namespace lunkeeper
