#include "node/device_metrics.h"

#include <string>

namespace lunkeeper {

void ReportDevices(const absl::StatusOr<std::vector<Device>>& devices, Metrics& metrics) {
  if (!devices.ok()) return;
  Metrics::Series series;
  for (const char* health : {"healthy", "reconnecting", "failed", "set_aside"})
    series[{{"health", health}}] = 0;
  for (const Device& device : *devices) {
    const std::string health = device.set_aside ? "set_aside" : ToString(device.health);
    ++series[{{"health", health}}];
  }
  metrics.SetGauge("lunkeeper_node_devices", "Block devices of this node, by health", series);
}

}  // namespace lunkeeper
