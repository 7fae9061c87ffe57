#pragma once
// The product's view of the simulated arrays, over the simulated network. Calls end by the time limits of the
// real client (devices/array/remote). The replica's own threads use it.

#include <memory>

#include "devices/array/arrays.h"
#include "fencing/sim/process.h"

namespace lunkeeper::fencing::sim {

std::unique_ptr<lunkeeper::Arrays> MakeArrayClients(Replica& replica, Process& process);

}  // namespace lunkeeper::fencing::sim
