#pragma once
// The operator's commands: `lunkeeper status`, `fence`, `unfence`, `allow`, `accept-restore`, `orphans`. Each
// makes one call to a running server's socket and prints its answer for people to read. In a pod of a
// cluster, `fence` and `unfence` of a whole node go to failover instead, by a NodeFence at the API server
// (fencing/failover/manual_fence.h), and `allow` goes there always. The exit code is 0, or 1 with the reason
// on standard error. One thread.

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "fencing/kube/kube_client.h"

namespace CLI {
class App;
}

namespace lunkeeper {

// FAILED_PRECONDITION: this is no pod of a cluster.
using MakeClient = std::function<absl::StatusOr<std::unique_ptr<kube::KubeClient>>()>;
absl::StatusOr<std::unique_ptr<kube::KubeClient>> InClusterClient();

// Adds the commands; the one that was given runs while the command line is parsed, and leaves its exit code
// here.
void AddAdminCommands(CLI::App* app, int* exit_code, const MakeClient& cluster = InClusterClient);

}  // namespace lunkeeper
