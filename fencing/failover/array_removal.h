#pragma once
// Removes an array from a cluster, and adds it back, at an operator's request (`lunkeeper remove-array`,
// `add-array`). What was asked for is stored (removal_record.h), and from then on holds by itself, whatever
// is killed: controllers grant nothing there and wait for nothing, and each answer to a heartbeat has the
// node end the I/O of what it has of it, for good. Nodes clean up failed devices as they always do, once
// nobody uses them; here the pods that do are asked to leave.
//
// Works in any replica. Thread-safe, without state of its own; every call may be repeated, and continues what
// another began. What it is given outlives it.

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/remaining_arrays.h"
#include "fencing/failover/failover.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::fencing {

struct RemoveArrayRequest {
  std::string array;
  bool force = false;  // also while its volumes are used; then the pods that use them are deleted
  std::string by;      // for people
};

class ArrayRemoval {
 public:
  // `space` is the controllers' namespace, where the record is.
  ArrayRemoval(RemainingArrays& arrays, Failover& failover, kube::KubeClient& client, std::string space)
      : arrays_(arrays), failover_(failover), client_(client), space_(std::move(space)) {}

  // Returns who used it. FAILED_PRECONDITION: volumes are used, by those who are named, and it was not
  // forced; nothing was changed. NOT_FOUND: there is no such array. Other errors: it is removed if the
  // message says so.
  absl::StatusOr<std::vector<VolumeUse>> RemoveArray(const RemoveArrayRequest& request, absl::Time deadline);
  // Grants of nodes whose heartbeats arrive and name no device are released first: they are left from before.
  // The array has to answer. Takes some seconds, until no replica can name it to a node any more. NOT_FOUND:
  // no such array is configured. ABORTED: the record was changed meanwhile, by a removal perhaps.
  absl::Status AddArray(const std::string& array, absl::Time deadline);

 private:
  absl::Status DeletePods(const std::vector<VolumeUse>& uses, absl::Time deadline);
  absl::Status ReleaseUnusedGrants(const std::string& name, GrantStore& grants, absl::Time deadline);

  RemainingArrays& arrays_;
  Failover& failover_;
  kube::KubeClient& client_;
  const std::string space_;
};

}  // namespace lunkeeper::fencing
