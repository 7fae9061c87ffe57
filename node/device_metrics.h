#pragma once
// What a node's metrics say of its devices:
//
//   lunkeeper_node_devices{health}  gauge: block devices, by `healthy`, `reconnecting`, `failed`, `set_aside`
//
// Thread-safe. A data path that does not answer leaves the metric as it was.

#include <vector>

#include "absl/status/statusor.h"
#include "base/metrics.h"
#include "devices/datapath/initiator.h"

namespace lunkeeper {

void ReportDevices(const absl::StatusOr<std::vector<Device>>& devices, Metrics& metrics);

}  // namespace lunkeeper
