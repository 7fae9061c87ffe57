#pragma once
// Metrics about nodes: for each channel of evidence the number of nodes in each of its states, the nodes by
// classification, the age of the oldest heartbeat, and the NodeFences by phase. Pure functions of the core's
// state. Label values come from a fixed set of words, so their number is bounded.

#include "base/metrics.h"
#include "fencing/core/state.h"

namespace lunkeeper::fencing {

void ReportFailoverMetrics(const State& state, Metrics& metrics);

}  // namespace lunkeeper::fencing
