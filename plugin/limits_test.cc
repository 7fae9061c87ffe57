// Limits on their way from the controllers to a node's devices, over real TLS on loopback.

#include "plugin/testing/heartbeating_node.h"

namespace lunkeeper {
namespace {

using testing::Eventually;

const VolumeId kLimited("a"), kPlain("b");

}  // namespace

TEST_CASE("limits that a replica reports are set, and a replica that is behind does not undo them") {
  CoordinatorRig rig;
  Controller& first = rig.AddController();
  Controller& second = rig.AddController();
  HeartbeatingNode node(rig, {first.port, second.port});
  node.Set(std::vector<Device>{DeviceOf("a"), DeviceOf("b")});
  second.sink.SetLimits({{kLimited, {.iops = 100, .bytes_per_second = 7, .version = 1}}});
  REQUIRE(Eventually([&] { return node.LimitsOf(kLimited).version == 1; }));
  CHECK(node.LimitsOf(kLimited).bytes_per_second == 7);
  node.refusing = true;
  first.sink.SetLimits({{kLimited, {.iops = 200, .bytes_per_second = 0, .version = 2}}});
  const int looks = node.looks;
  REQUIRE(Eventually([&] { return node.looks > looks + 20; }));
  CHECK(node.LimitsOf(kLimited).version == 1);
  node.refusing = false;
  REQUIRE(Eventually([&] { return node.LimitsOf(kLimited).version == 2; }));
  const int heard = second.sink.heartbeats();
  REQUIRE(Eventually([&] { return second.sink.heartbeats() > heard + 20; }));
  CHECK(node.LimitsOf(kLimited) == VolumeLimits{.iops = 200, .bytes_per_second = 0, .version = 2});
  CHECK(node.LimitsOf(kPlain) == VolumeLimits());
}

}  // namespace lunkeeper
