#pragma once
// What a node asks of a controller replica besides heartbeats: grants of its volumes, their release, a list
// of them, and its heartbeat LUNs. Decides who gets what; knows nothing of messages and tokens. Whose request
// it is the caller has found out.
//
// Thread-safe. Each call blocks for as long as the array does, and AcquireGrant for its wait. A call may be
// repeated, also at another replica. Failure: as devices/array says, and UNAVAILABLE once this replica is
// leaving: another one is to be asked.

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/arrays.h"
#include "fencing/protocol/volume_use_check.h"

namespace lunkeeper {

class NodeRequests {
 public:
  // `grants` are those of all `arrays`. A node may have `most_volumes` of one array; 0: any number. Without
  // `uses` (null) it gets what it asks for. They outlive it.
  NodeRequests(GrantStore& grants, Arrays& arrays, VolumeUseCheck* uses, size_t most_volumes)
      : grants_(grants), arrays_(arrays), uses_(uses), most_volumes_(most_volumes) {}

  // The replica stops: calls that wait end within a second, and new ones at once.
  void Leave() { leaving_ = true; }
  bool leaving() const { return leaving_; }
  // What callers get from then on.
  static absl::Status LeavingError();

  // FAILED_PRECONDITION also where no pod on the node uses the volume. `wanted.abandoned`: nobody waits for
  // the answer any more.
  absl::StatusOr<Grant> AcquireGrant(GrantRequest wanted, absl::Duration wait);
  // INVALID_ARGUMENT: it names no generation.
  absl::Status ReleaseGrant(const NodeId& node, const VolumeId& volume, Generation generation);
  // Of all volumes, if `volume` is empty.
  absl::StatusOr<std::vector<Grant>> ListGrants(const NodeId& node, const VolumeId& volume);
  absl::StatusOr<Connection> OpenHeartbeatLun(const NodeId& node, const std::string& array, bool signs);

 private:
  absl::Status CheckUse(const NodeId& node, const VolumeId& volume);

  GrantStore& grants_;
  Arrays& arrays_;
  VolumeUseCheck* const uses_;
  const size_t most_volumes_;
  std::atomic<bool> leaving_ = false;
};

}  // namespace lunkeeper
