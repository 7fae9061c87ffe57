#pragma once
// The metrics of the volumes that are attached to this machine, as the data path counts them. Nothing is kept
// here: each call writes what is attached now, so a volume's series end when it is detached, and there are
// never more than there are devices. Pure; thread-safe.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/datapath/initiator.h"

namespace lunkeeper {

// In Prometheus' text format 0.0.4. `devices`: with statistics; an error, if the data path did not answer, of
// which only lunkeeper_node_datapath_answers tells.
std::string WriteVolumeMetrics(const absl::StatusOr<std::vector<Device>>& devices);

}  // namespace lunkeeper
