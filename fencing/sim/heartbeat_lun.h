#pragma once
// What the product's heartbeats to storage (fencing/agent) meet in the simulated world: where a machine's
// heartbeat LUN on an array is, which it asks the controllers, and sessions with it. Calls are of the
// plugin's own threads.

#include "fencing/agent/storage_heartbeats.h"
#include "fencing/sim/process.h"

namespace lunkeeper::fencing::sim {

HeartbeatLunAccess AskReplicasForLun(Machine& machine, Process& process);
LogInToHeartbeatLun LogInToSimulatedLun(const Machine& machine, Process& process);

}  // namespace lunkeeper::fencing::sim
