#include "fencing/agent/detail_rotation.h"

#include <catch2/catch.hpp>
#include <set>

#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

DeviceDetails Devices(int count) {
  DeviceDetails all;
  for (int i = 0; i < count; ++i) all[VolumeId(absl::StrCat("v", i))].device = absl::StrCat("/dev/loop", i);
  return all;
}

std::string Named(const DeviceDetails& details) {
  std::string named;
  for (const auto& each : details) absl::StrAppend(&named, each.first.value(), " ");
  return named;
}

Device DeviceWith(DeviceHealth health) {
  Device device;
  device.path = "/dev/loop3";
  device.portal = "10.0.0.5:3260";
  device.other_portals = {"10.0.1.5:3260"};
  device.health = health;
  return device;
}

std::string Paths(DeviceHealth health, const std::set<std::string>& lost = {}) {
  const auto is_lost = [&](const std::string& portal) { return lost.contains(portal); };
  std::string told;
  for (const DevicePath& path : DescribeDevice(DeviceWith(health), {}, is_lost).paths)
    absl::StrAppend(&told, path.portal, " ", ToText(path.state), "; ");
  return told;
}

}  // namespace

TEST_CASE("every device gets its turn, a few with each heartbeat") {
  DetailRotation rotation;
  CHECK(rotation.TakeNext(2).empty());
  rotation.Update(Devices(5));
  CHECK(Named(rotation.TakeNext(2)) == "v0 v1 ");
  CHECK(Named(rotation.TakeNext(2)) == "v2 v3 ");
  std::set<std::string> seen;
  for (int i = 0; i < 3; ++i)
    for (const auto& each : rotation.TakeNext(2)) seen.insert(each.first.value());
  CHECK(seen.size() == 5);
  CHECK(rotation.TakeNext(9).size() == 5);
}

TEST_CASE("a device that changed goes before the others") {
  DetailRotation rotation;
  DeviceDetails devices = Devices(5);
  rotation.Update(devices);
  rotation.TakeNext(5);
  devices[VolumeId("v4")].mounts = {"/var/lib/kubelet/pods/x"};
  rotation.Update(devices);
  CHECK(Named(rotation.TakeNext(1)) == "v4 ");
  CHECK(Named(rotation.TakeNext(1)) != "v4 ");  // it had its turn
}

TEST_CASE("a device that is gone is reported no more, and a new one of its volume at once") {
  DetailRotation rotation;
  rotation.Update(Devices(2));
  rotation.TakeNext(2);
  rotation.Update(Devices(1));
  CHECK(Named(rotation.TakeNext(5)) == "v0 ");
  rotation.Update(Devices(2));
  CHECK(Named(rotation.TakeNext(1)) == "v1 ");
}

TEST_CASE("a path says whether I/O goes there, waits, or cannot") {
  CHECK(Paths(DeviceHealth::kHealthy) == "10.0.0.5:3260 connected; 10.0.1.5:3260 standby; ");
  CHECK(Paths(DeviceHealth::kReconnecting) == "10.0.0.5:3260 reconnecting; 10.0.1.5:3260 standby; ");
  CHECK(Paths(DeviceHealth::kReconnecting, {"10.0.0.5:3260", "10.0.1.5:3260"}) ==
        "10.0.0.5:3260 lost; 10.0.1.5:3260 lost; ");
  CHECK(Paths(DeviceHealth::kFailed) == "10.0.0.5:3260 failed; 10.0.1.5:3260 failed; ");
}

TEST_CASE("a path is connected where I/O goes, and not where it went at first") {
  Device device = DeviceWith(DeviceHealth::kHealthy);
  device.used_portal = "10.0.1.5:3260";
  const DeviceDetail detail = DescribeDevice(device, {}, [](const std::string&) { return false; });
  CHECK(detail.paths == std::vector<DevicePath>{{"10.0.0.5:3260", PathState::kStandby},
                                                {"10.0.1.5:3260", PathState::kConnected}});
}

TEST_CASE("what a device has too many of is left out") {
  Device device = DeviceWith(DeviceHealth::kHealthy);
  device.other_portals.resize(100, "10.0.1.5:3260");
  std::vector<std::string> mounts(100, "/mnt");
  mounts.front() = std::string(1000, 'x');
  const DeviceDetail detail = DescribeDevice(device, mounts, [](const std::string&) { return false; });
  CHECK(detail.device == "/dev/loop3");
  CHECK(detail.paths.size() == kMostPaths);
  CHECK(detail.mounts == std::vector<std::string>(kMostMounts, "/mnt"));
}

}  // namespace lunkeeper
