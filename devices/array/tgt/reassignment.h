#pragma once
// Gives all that one cluster has of an array to another, for a cluster that was made again under another
// name: an array shows each cluster its own volumes alone (array.h). Ids stay as they are, so
// PersistentVolumes that were kept fit. Only an operator may ask for it, at the array: a cluster that could
// take another's volumes by itself would be no boundary.
//
// Nothing is taken from a node that uses it: a volume with a grant forbids all of it. Grants can be ended
// first, as a fence ends them, which is safe also if the node lives. What the old cluster asks for afterwards
// finds no such volume; a deletion is then done, and deletes nothing.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/types.h"

namespace lunkeeper {

struct TgtParts;

struct ClusterHoldings {
  uint64_t volumes = 0;
  uint64_t snapshots = 0;
  uint64_t groups = 0;
  uint64_t size_bytes = 0;  // of the volumes and snapshots
  friend bool operator==(const ClusterHoldings&, const ClusterHoldings&) = default;
};

struct Reassignment {
  ClusterId from, to;
  bool end_grants = false;  // by a fence of each node of `from` that has any
  bool only_check = false;  // say what would be done, and what forbids it
  std::string asked_by;     // for people
};

struct Reassigned {
  ClusterHoldings holdings;
  std::vector<NodeId> fenced;
};

// All of it, or nothing but fences. NOT_FOUND: `from` has nothing here, and who has. INVALID_ARGUMENT: both
// are the same. FAILED_PRECONDITION, ALREADY_EXISTS, ABORTED: as ClusterCatalogue::ReassignAll; also ABORTED
// while a call works on something of `from`. DEADLINE_EXCEEDED: as FenceNode; repeat the call.
absl::StatusOr<Reassigned> ReassignCluster(const TgtParts& parts, const Reassignment& asked);

}  // namespace lunkeeper
