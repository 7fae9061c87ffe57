#pragma once
// Where this node's grants come from when the orchestrator brings none: the controller over its authenticated
// channel, or, in one process with it, the array itself. Thread-safe; every call may be repeated. Failure: as
// devices/array/array.h says of Acquire and Release.

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/array.h"

namespace lunkeeper {

class GrantSource {
 public:
  virtual ~GrantSource() = default;

  // This node's grant of the volume, after waiting for other nodes' to end for at most `wait`.
  virtual absl::StatusOr<Grant> Acquire(const VolumeId& volume, Access access, absl::Duration wait) = 0;
  // Gives back what Acquire took, and not what the orchestrator took for this node. OK when there is nothing.
  virtual absl::Status Release(const VolumeId& volume) = 0;
  // Whether this node has a grant of the volume now, whoever took it.
  virtual absl::StatusOr<bool> Holds(const VolumeId& volume) = 0;
};

}  // namespace lunkeeper
