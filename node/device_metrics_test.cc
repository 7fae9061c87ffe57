#include "node/device_metrics.h"

#include <catch2/catch.hpp>

namespace lunkeeper {
namespace {

Device With(DeviceHealth health, bool set_aside = false) {
  Device device;
  device.health = health;
  device.set_aside = set_aside;
  return device;
}

bool Shows(const Metrics& metrics, const std::string& health, const std::string& count) {
  return metrics.ToText().find("lunkeeper_node_devices{health=\"" + health + "\"} " + count + "\n") !=
         std::string::npos;
}

TEST_CASE("devices are counted by health, and those that are set aside on their own") {
  Metrics metrics("node");
  ReportDevices(std::vector{With(DeviceHealth::kHealthy), With(DeviceHealth::kFailed, true),
                            With(DeviceHealth::kFailed), With(DeviceHealth::kHealthy)},
                metrics);
  CHECK(Shows(metrics, "healthy", "2"));
  CHECK(Shows(metrics, "reconnecting", "0"));
  CHECK(Shows(metrics, "failed", "1"));
  CHECK(Shows(metrics, "set_aside", "1"));
  ReportDevices(absl::UnavailableError("nobody answers"), metrics);
  CHECK(Shows(metrics, "healthy", "2"));
  ReportDevices(std::vector<Device>(), metrics);
  CHECK(Shows(metrics, "healthy", "0"));
  CHECK(Shows(metrics, "set_aside", "0"));
}

}  // namespace
}  // namespace lunkeeper
