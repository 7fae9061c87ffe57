#pragma once
// What the product's heartbeats to storage (fencing/agent) meet in the simulated world: sessions with a
// machine's heartbeat LUN on an array. Calls are of the plugin's own threads.

#include "fencing/agent/storage_heartbeats.h"
#include "fencing/sim/process.h"

namespace lunkeeper::fencing::sim {

LogInToHeartbeatLun LogInToSimulatedLun(const Machine& machine, Process& process);

}  // namespace lunkeeper::fencing::sim
