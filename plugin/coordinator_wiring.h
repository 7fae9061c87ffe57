#pragma once
// The coordinator in a server. In a controller: the service, the review of its callers' tokens by the
// Kubernetes API server, and failover. On a node: the connections to the controllers, its grants and its
// heartbeats. Called once, from main's thread; `backends` owns what is made here.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "fencing/agent/heartbeat_sender.h"
#include "plugin/backends.h"
#include "plugin/options.h"

namespace lunkeeper {

// Adds the listener over the controller's array, and starts failover, which receives the heartbeats. No node
// is given more than `most_volumes` of an array. FAILED_PRECONDITION: its TLS files cannot be used, or this
// is no pod of a cluster.
absl::Status OpenCoordinator(const CoordinatorOptions& options, const FailoverFlags& failover,
                             size_t most_volumes, Backends* backends);

// Makes the controllers the node's source of grants, and begins its heartbeats, to them and to these arrays.
// `view` needs no kubelet_ok.
absl::Status OpenCoordinatorClient(const CoordinatorOptions& options, const std::vector<std::string>& arrays,
                                   NodeView view, Backends* backends);

}  // namespace lunkeeper
