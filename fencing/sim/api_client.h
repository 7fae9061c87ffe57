#pragma once
// The product's client of the API server, over the simulated network: every call may be lost, come late, or
// be carried out without an answer. The replica's own threads use it.

#include <memory>
#include <string>

#include "fencing/kube/kube_client.h"
#include "fencing/sim/api.h"
#include "fencing/sim/process.h"

namespace lunkeeper::fencing::sim {

std::unique_ptr<kube::KubeClient> MakeApiClient(Replica& replica, Process& process);

}  // namespace lunkeeper::fencing::sim
