// Fences as a node learns of them: from the controllers' answers to its heartbeats, and elsewhere.

#include <atomic>

#include "fencing/agent/heartbeat_sender.h"
#include "plugin/testing/heartbeating_node.h"

namespace lunkeeper {
namespace {

using testing::Eventually;

const VolumeId kFenced("a"), kBeside("b");

}  // namespace

TEST_CASE("a fenced node is told, and says that it knows") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  const fencing::ArrayId array("main");
  controller.sink.SetFences({{array, {rig.node, 7, {kFenced, kBeside}}}});
  CHECK(Eventually([&] {
    return controller.sink.last().known == std::map<fencing::ArrayId, Generation>{{array, 7}};
  }));
}

TEST_CASE("the I/O of a fenced volume is ended, and that of its neighbour is not") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  node.Set(std::vector<Device>{DeviceOf("a"), DeviceOf("b")});
  controller.sink.SetFences({{fencing::ArrayId("main"), {rig.node, 7, {kFenced}}}});
  REQUIRE(Eventually([&] { return node.IsFailed(kFenced); }));
  REQUIRE(Eventually([&] { return controller.sink.last().failing == fencing::VolumeSet{kFenced}; }));
  CHECK_FALSE(node.IsFailed(kBeside));
  // The fence grows.
  controller.sink.SetFences({{fencing::ArrayId("main"), {rig.node, 7, {kFenced, kBeside}}}});
  CHECK(Eventually([&] { return node.IsFailed(kBeside); }));
}

TEST_CASE("a fence that the node hears of elsewhere ends I/O as well, and is known") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  node.Set(std::vector<Device>{DeviceOf("a"), DeviceOf("b")});
  const fencing::ArrayId array("main");
  node.sender->OnFence(array, {rig.node, 7, {kFenced}});
  REQUIRE(Eventually([&] { return node.IsFailed(kFenced); }));
  CHECK(Eventually([&] { return controller.sink.last().known.contains(array); }));
  CHECK_FALSE(node.IsFailed(kBeside));
}

TEST_CASE("a data path that does not answer is told again to end a fenced volume's I/O") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  node.Set(std::vector<Device>{DeviceOf("a")});
  node.refusing = true;
  controller.sink.SetFences({{fencing::ArrayId("main"), {rig.node, 7, {kFenced}}}});
  REQUIRE(Eventually([&] { return node.calls >= 3; }));
  CHECK_FALSE(node.IsFailed(kFenced));
  node.refusing = false;
  CHECK(Eventually([&] { return node.IsFailed(kFenced); }));
}

TEST_CASE("a late answer about an old fence does not reach the device of a newer grant") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  node.Set(std::vector<Device>{DeviceOf("a")});
  const fencing::ArrayId array("main");
  controller.sink.SetFences({{array, {rig.node, 7, {kFenced}}}});
  REQUIRE(Eventually([&] { return node.IsFailed(kFenced); }));
  node.Set(std::vector<Device>());
  REQUIRE(Eventually([&] { return controller.sink.last().present.empty(); }));
  node.Set(std::vector<Device>{DeviceOf("a"), DeviceOf("b")});
  controller.sink.SetFences({{array, {rig.node, 6, {kFenced, kBeside}}}});
  const int before = controller.sink.heartbeats();
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= before + 5; }));
  CHECK_FALSE(node.IsFailed(kBeside));
  CHECK_FALSE(node.IsFailed(kFenced));
  CHECK(controller.sink.last().known.at(array) == 7);
}

TEST_CASE("an old fence that is told of for the first time does not reach the device of a newer grant") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  Device older = DeviceOf("a"), newer = DeviceOf("b");
  older.target = Iqn("iqn.2026-11.io.lunkeeper:main:a:6");
  newer.target = Iqn("iqn.2026-11.io.lunkeeper:main:b:8");
  node.Set(std::vector<Device>{older, newer});
  controller.sink.SetFences({{fencing::ArrayId("main"), {rig.node, 7, {kFenced, kBeside}}}});
  REQUIRE(Eventually([&] { return node.IsFailed(kFenced); }));
  const int before = controller.sink.heartbeats();
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= before + 5; }));
  CHECK_FALSE(node.IsFailed(kBeside));
}

TEST_CASE("a fence that comes while an older one is enforced is enforced as well") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  const auto replicas = rig.Connect({controller.port});
  const fencing::ArrayId array("main");
  Device older = DeviceOf("a"), newer = DeviceOf("b");
  older.target = Iqn("iqn.2026-11.io.lunkeeper:main:a:6");
  newer.target = Iqn("iqn.2026-11.io.lunkeeper:main:b:8");
  std::atomic<HeartbeatSender*> told = nullptr;
  std::atomic<bool> failed = false;
  const auto sender = StartHeartbeatSender({.node = rig.node, .every = absl::Milliseconds(50)},
                                           SendOverGrpc(*replicas, rig.node),
                                           {.devices = [&]() -> absl::StatusOr<std::vector<Device>> {
                                              return std::vector<Device>{older, newer};
                                            },
                                            .fail =
                                                [&](const Device& device, const std::string&) {
                                                  if (device.volume == kBeside) failed = true;
                                                  if (device.volume == kFenced)
                                                    told.load()->OnFence(array, {rig.node, 9, {kBeside}});
                                                  return absl::OkStatus();
                                                },
                                            .kubelet_ok = nullptr});
  told = sender.get();
  sender->OnFence(array, {rig.node, 7, {kFenced, kBeside}});
  CHECK(Eventually([&] { return failed.load(); }));
}

TEST_CASE("a node that was told of a fence is not clean before it has seen its devices") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  const fencing::ArrayId array("main");
  controller.sink.SetFences({{array, {rig.node, 7, {kFenced}}}});
  std::atomic<bool> answering = false;
  const auto replicas = rig.Connect({controller.port});
  const auto sender = StartHeartbeatSender(
      {.node = rig.node, .every = absl::Milliseconds(50)}, SendOverGrpc(*replicas, rig.node),
      {.devices = [&]() -> absl::StatusOr<std::vector<Device>> {
         if (!answering) return absl::UnavailableError("the data path does not answer");
         return std::vector<Device>();
       },
       .fail = [](const Device&, const std::string&) { return absl::OkStatus(); },
       .kubelet_ok = nullptr});
  REQUIRE(Eventually([&] { return controller.sink.last().known.contains(array); }));
  CHECK(controller.sink.last().present == fencing::VolumeSet{kFenced});
  answering = true;
  CHECK(Eventually([&] { return controller.sink.last().present.empty(); }));
}

}  // namespace lunkeeper
