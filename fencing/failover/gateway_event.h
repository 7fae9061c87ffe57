#pragma once
// Tells Kubernetes that another gateway serves an array, by an event on the Lease of failover, as there is no
// object of an array. The event's name is made of the array and the epoch, so there is one event of
// each change, however many replicas record it and how often. Stateless, thread-safe.

#include <string>

#include "absl/status/status.h"
#include "devices/array/gateway_state.h"
#include "fencing/kube/kube_client.h"
#include "fencing/kube/lease.h"

namespace lunkeeper::fencing {

// OK: Kubernetes knows it, by this call or an earlier one. `replica`: who tells it.
absl::Status TellGateway(kube::KubeClient& client, const kube::LeaseName& lease, const std::string& replica,
                         const ArrayGateway& gateway, const kube::Limits& limits);

}  // namespace lunkeeper::fencing
