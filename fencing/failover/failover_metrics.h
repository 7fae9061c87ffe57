#pragma once
// How the nodes are, in numbers: in how many of them each channel of evidence is in which state, what they
// are judged to be, how old the oldest heartbeat is, and how far each NodeFence has come. Pure functions of
// the core's state; label values are words of the program's own.

#include "base/metrics.h"
#include "fencing/core/state.h"

namespace lunkeeper::fencing {

void ReportFailoverMetrics(const State& state, Metrics& metrics);

}  // namespace lunkeeper::fencing
