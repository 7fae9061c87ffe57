#pragma once
// What Kubernetes calls the things that arrays know by id: claims, snapshots, nodes. Read once for one
// command, from the API server. Blocks until the deadline at most; one thread. Failure: what the API server
// answers.

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"
#include "plugin/admin_call.h"
#include "plugin/admin_client.h"

namespace lunkeeper {

using NamesById = std::map<std::string, std::string>;

// "namespace/name" of the claim that each of our volumes is bound to, by the volume's id.
absl::StatusOr<NamesById> ReadClaims(kube::KubeClient& client, absl::Time deadline);
// "namespace/name" of the VolumeSnapshot of each of our snapshots, by the snapshot's id. NOT_FOUND: the
// cluster has no such kind.
absl::StatusOr<NamesById> ReadVolumeSnapshots(kube::KubeClient& client, absl::Time deadline);
// The name of each Node that has our driver, by the node's id.
absl::StatusOr<NamesById> ReadNodes(kube::KubeClient& client, absl::Time deadline);
// The phase of each NodeFence, by the node's id.
absl::StatusOr<NamesById> ReadFencePhases(kube::KubeClient& client, absl::Time deadline);

using ReadNames = absl::StatusOr<NamesById> (*)(kube::KubeClient&, absl::Time);
// None where this is no pod of a cluster. None, and why on standard error, where they cannot be read: a list
// with ids alone is better than no list. `what` is plural: "claims".
NamesById ReadNamesOrWarn(const MakeClient& cluster, ReadNames read, const char* what,
                          const AdminTarget& target);

}  // namespace lunkeeper
