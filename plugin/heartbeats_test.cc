// Heartbeats from a node to the controllers, over real TLS on loopback.

#include <atomic>
#include <future>
#include <optional>

#include "absl/synchronization/mutex.h"
#include "base/testing/silent_port.h"
#include "base/testing/stalling_proxy.h"
#include "base/testing/wall_clock.h"
#include "fencing/agent/heartbeat_sender.h"
#include "plugin/testing/heartbeating_node.h"

namespace lunkeeper {
namespace {

using testing::Eventually;

const VolumeId kA("a"), kB("b");

}  // namespace

TEST_CASE("every replica hears a node, in rising order, and what becomes of its volumes") {
  CoordinatorRig rig;
  Controller& first = rig.AddController();
  Controller& second = rig.AddController();
  HeartbeatingNode node(rig, {first.port, second.port});
  REQUIRE(Eventually([&] { return first.sink.heartbeats() >= 2 && second.sink.heartbeats() >= 2; }));
  const fencing::Heartbeat before = first.sink.last();
  CHECK(before.node == rig.node);
  CHECK(before.boot.size() == 36);
  CHECK(before.present.empty());
  node.Set(std::vector<Device>{DeviceOf("a"), DeviceOf("b", DeviceHealth::kReconnecting)});
  REQUIRE(Eventually([&] { return second.sink.last().failing == fencing::VolumeSet{kB}; }));
  CHECK(second.sink.last().present == fencing::VolumeSet{kA, kB});
  CHECK(second.sink.last().sequence > before.sequence);
  CHECK(second.sink.last().boot == before.boot);
}

TEST_CASE("that a volume fails is said at once, and not with the next heartbeat") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port}, rig.node, absl::Minutes(5));
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() == 1 && node.looks >= 1; }));
  node.Set(std::vector<Device>{DeviceOf("a", DeviceHealth::kFailed)});
  node.sender->OnFence(fencing::ArrayId("fake"), {rig.node, 1, {kB}});  // it looks at its devices
  CHECK(Eventually([&] { return controller.sink.last().failing == fencing::VolumeSet{kA}; }));
}

TEST_CASE("that a path is lost, and that it is back, is said without a look that is due") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  testing::SilentPort portal;
  portal.FallSilent();
  HeartbeatingNode node(rig, {controller.port}, rig.node, absl::Minutes(5));
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() == 1 && node.looks >= 1; }));
  Device waits = DeviceOf("a", DeviceHealth::kReconnecting);
  waits.portal = portal.portal();
  node.Set(std::vector<Device>{waits});
  node.sender->OnFence(fencing::ArrayId("fake"), {rig.node, 1, {kB}});  // it looks, and begins to probe
  REQUIRE(Eventually([&] { return controller.sink.last().failing == fencing::VolumeSet{kA}; }));
  portal.Refuse();
  CHECK(Eventually([&] { return controller.sink.last().failing.empty(); }));
}

TEST_CASE("I/O that waits for an array which answers is not failing") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  Device waits = DeviceOf("a", DeviceHealth::kReconnecting);
  waits.portal = absl::StrCat("127.0.0.1:", controller.port);
  node.Set(std::vector<Device>{waits, DeviceOf("b", DeviceHealth::kFailed)});
  REQUIRE(Eventually([&] { return controller.sink.last().failing.contains(kB); }));
  const int before = controller.sink.heartbeats();
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= before + 50; }));
  CHECK(controller.sink.last().failing == fencing::VolumeSet{kB});
}

TEST_CASE("I/O that waits is failing only when none of its array's portals answers") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  testing::SilentPort first, second;
  first.FallSilent();
  HeartbeatingNode node(rig, {controller.port});
  Device waits = DeviceOf("a", DeviceHealth::kReconnecting), fails = DeviceOf("b", waits.health);
  waits.portal = fails.portal = first.portal();
  waits.other_portals = {second.portal()};
  node.Set(std::vector<Device>{waits, fails});
  REQUIRE(Eventually([&] { return controller.sink.last().failing.contains(kB); }));
  CHECK(controller.sink.last().failing == fencing::VolumeSet{kB});
  second.FallSilent();
  CHECK(Eventually([&] { return controller.sink.last().failing.contains(kA); }));
}

TEST_CASE("an idle volume is failing when neither its array hears the node nor a portal answers") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  testing::SilentPort silent, answering;
  silent.FallSilent();
  HeartbeatingNode node(rig, {controller.port});
  const VolumeId lost("rack1-v0000000000000001"), slow("rack1-v0000000000000002"),
      heard("rack2-v0000000000000003");
  Device devices[] = {DeviceOf(lost.value()), DeviceOf(slow.value()), DeviceOf(heard.value())};
  for (Device& device : devices) device.portal = silent.portal();
  devices[1].other_portals = {answering.portal()};
  node.Set(std::vector<Device>(std::begin(devices), std::end(devices)));
  const fencing::ArrayId rack1("rack1"), rack2("rack2");
  const auto land = [&](bool on_both) {
    if (on_both) node.sender->OnStorageHeartbeat(rack1);
    node.sender->OnStorageHeartbeat(rack2);
  };
  const int before = controller.sink.heartbeats();
  REQUIRE(Eventually([&] { return land(true), controller.sink.heartbeats() >= before + 50; }));
  CHECK(controller.sink.last().failing.empty());
  REQUIRE(Eventually([&] { return land(false), controller.sink.last().failing.contains(lost); }));
  CHECK(controller.sink.last().failing == fencing::VolumeSet{lost});
  CHECK(controller.sink.last().idle.empty());
  node.idle = true;
  REQUIRE(Eventually([&] { return land(false), controller.sink.last().idle.contains(lost); }));
  CHECK(controller.sink.last().failing == fencing::VolumeSet{lost});
  CHECK_FALSE(controller.sink.last().idle.contains(heard));
  CHECK(Eventually([&] { return land(true), controller.sink.last().failing.empty(); }));
}

TEST_CASE("a data path that cannot be asked leaves the heartbeats going, and its volumes failing") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  node.Set(std::vector<Device>{DeviceOf("a")});
  REQUIRE(Eventually([&] { return controller.sink.last().present.contains(kA); }));
  CHECK(controller.sink.last().failing.empty());
  node.Set(absl::UnavailableError("the data path does not answer"));
  REQUIRE(Eventually([&] { return controller.sink.last().failing.contains(kA); }));
  CHECK(controller.sink.last().present.contains(kA));
}

TEST_CASE("a node that hangs while it looks at its devices goes on sending heartbeats") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= 1; }));
  absl::MutexLock hangs(&node.mutex);
  const int before = controller.sink.heartbeats();
  CHECK(Eventually([&] { return controller.sink.heartbeats() >= before + 5; }));
}

TEST_CASE("a node ends the I/O of a removed array's volumes, also where it hears of it late") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  controller.sink.SetRemoved({"rack1"});
  HeartbeatingNode node(rig, {controller.port});
  const VolumeId gone("rack1-v0000000000000001"), other("rack2-v0000000000000001");
  node.refusing = true;  // its data path does not answer yet
  node.Set(std::vector<Device>{DeviceOf(gone.value()), DeviceOf(other.value())});
  REQUIRE(Eventually([&] { return node.calls >= 2; }));
  node.refusing = false;
  REQUIRE(Eventually([&] { return controller.sink.last().failed.contains(gone); }));
  CHECK_FALSE(node.IsFailed(other));
  CHECK(controller.sink.last().present.contains(gone));
  node.Set(std::vector<Device>{DeviceOf(other.value())});
  CHECK(Eventually([&] { return !controller.sink.last().present.contains(gone); }));

  controller.sink.SetRemoved({});  // added back
  const int before = controller.sink.heartbeats();
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= before + 5; }));
  const int calls = node.calls;
  node.Set(std::vector<Device>{DeviceOf(gone.value())});
  REQUIRE(Eventually([&] { return controller.sink.last().present.contains(gone); }));
  CHECK(node.calls == calls);
}

TEST_CASE("a node that stops has closed its stream; it is told from one that falls silent") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  auto stops = std::make_unique<HeartbeatingNode>(rig, std::vector<uint16_t>{controller.port});
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= 1; }));
  stops.reset();
  CHECK(Eventually([&] { return controller.sink.closed() == 1; }));
}

TEST_CASE("the end of a stream that had been silent says nothing") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  StallingProxy proxy(controller.port);
  const auto running = [&] {
    return controller.metrics.ToText().find(
               "lunkeeper_rpc_running{method=\"lunkeeper.coordinator.v1.Coordinator/Heartbeats\"} 1") !=
           std::string::npos;
  };
  HeartbeatingNode node(rig, {proxy.port()});
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= 1 && running(); }));
  proxy.Stall(true);
  const absl::Time silent = absl::Now();
  REQUIRE(Eventually([&] { return absl::Now() - silent > absl::Milliseconds(2500); }));
  proxy.CloseAll();
  REQUIRE(Eventually([&] { return !running(); }));
  CHECK(controller.sink.closed() == 0);
}

TEST_CASE("a replica that comes back is heard by again, and one that comes late too") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  StallingProxy proxy(controller.port);
  HeartbeatingNode node(rig, {proxy.port()});
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= 1; }));
  for (int round = 0; round < 2; ++round) {
    proxy.CloseAll();
    const int before = controller.sink.heartbeats();
    CHECK(Eventually([&] { return controller.sink.heartbeats() >= before + 3; }));
  }
}

TEST_CASE("a node whose clock was set back is heard again after its connection was lost") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  StallingProxy proxy(controller.port);
  std::optional<testing::WallClockAhead> ahead(absl::Minutes(30));  // its token is good for longer
  HeartbeatingNode node(rig, {proxy.port()});
  const bool heard = Eventually([&] { return controller.sink.heartbeats() >= 1; });
  ahead.reset();
  REQUIRE(heard);
  proxy.CloseAll();
  const int before = controller.sink.heartbeats();
  CHECK(Eventually([&] { return controller.sink.heartbeats() >= before + 3; }));
}

TEST_CASE("a connection that hangs is given up, and the node is heard again") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  StallingProxy proxy(controller.port);
  HeartbeatingNode node(rig, {proxy.port()});
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= 1; }));
  proxy.Stall(true);
  const absl::Time silent = absl::Now();
  REQUIRE(Eventually([&] { return absl::Now() - silent > absl::Seconds(6); }));
  proxy.CloseAll();
  proxy.Stall(false);
  const int before = controller.sink.heartbeats();
  CHECK(Eventually([&] { return controller.sink.heartbeats() >= before + 3; }));
}

TEST_CASE("a node says that its kubelet hangs, and that it does no more") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= 1; }));
  CHECK(controller.sink.last().kubelet_ok);
  node.kubelet_ok = false;
  REQUIRE(Eventually([&] { return !controller.sink.last().kubelet_ok; }));
  node.kubelet_ok = true;
  CHECK(Eventually([&] { return controller.sink.last().kubelet_ok; }));
}

TEST_CASE("a node says which file systems closed themselves to writes, and that they do no more") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  node.Set(std::vector{DeviceOf(kA.value())});
  REQUIRE(Eventually([&] { return controller.sink.last().present.contains(kA); }));
  CHECK(controller.sink.last().closed.empty());
  node.closed = true;
  REQUIRE(Eventually([&] { return controller.sink.last().closed == fencing::VolumeSet{kA}; }));
  node.Set(absl::UnavailableError("the data path does not answer"));
  node.closed = false;
  node.Set(std::vector{DeviceOf(kA.value())});
  CHECK(Eventually([&] { return controller.sink.last().closed.empty(); }));
}

TEST_CASE("heartbeats in another node's name are not heard") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode liar(rig, {controller.port}, rig.other);
  REQUIRE(
      Eventually([&] { return controller.metrics.ToText().find("PERMISSION_DENIED") != std::string::npos; }));
  CHECK(controller.sink.heartbeats() == 0);
}

TEST_CASE("a stream ends with its token, and goes on with the next one") {
  CoordinatorRig rig;
  rig.reviewer.AddNode("short", "node-1", absl::Milliseconds(500));
  rig.reviewer.AddNode("next", "node-1");
  rig.WriteToken("short");
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= 1; }));
  rig.WriteToken("next");
  REQUIRE(
      Eventually([&] { return controller.metrics.ToText().find("UNAUTHENTICATED") != std::string::npos; }));
  const int before = controller.sink.heartbeats();
  CHECK(Eventually([&] { return controller.sink.heartbeats() >= before + 3; }));
  CHECK(controller.sink.closed() == 0);
}

TEST_CASE("a node whose token is not there yet is heard once it is") {
  CoordinatorRig rig;
  rig.WriteToken("");
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  REQUIRE(Eventually([&] { return node.looks >= 3; }));  // it sends as often as it looks
  CHECK(controller.sink.heartbeats() == 0);
  rig.WriteToken("token-1");
  CHECK(Eventually([&] { return controller.sink.heartbeats() >= 3; }));
}

TEST_CASE("a replica that leaves ends the streams and takes no node for stopped") {
  CoordinatorRig rig;
  Controller& controller = rig.AddController();
  HeartbeatingNode node(rig, {controller.port});
  REQUIRE(Eventually([&] { return controller.sink.heartbeats() >= 1; }));
  controller.coordinator->SendNodesAway();
  CHECK(controller.server->Stop(absl::Seconds(20)));
  CHECK(controller.sink.closed() == 0);
}

TEST_CASE("three hundred waiting nodes delay neither heartbeats nor other calls, and all get their volumes") {
  constexpr int kNodes = 300;
  CoordinatorRig rig;
  // All of them have the token of one.
  Controller& controller =
      rig.AddController(CoordinatorRig::ManyNodes(), {.node = {.running_calls = kNodes + 1}});
  HeartbeatingNode node(rig, {controller.port});
  std::vector<VolumeId> volumes;
  for (int i = 0; i < kNodes; ++i) {
    volumes.push_back(rig.MakeVolume(absl::StrCat("v", i)));
    rig.Occupy(volumes.back());
  }
  const auto replicas = rig.Connect({controller.port});
  const auto grants = MakeCoordinatorGrantSource(replicas->table(), rig.node);
  std::atomic<int> granted = 0;
  std::vector<std::thread> waiting;
  for (const VolumeId& volume : volumes) {
    waiting.emplace_back([&, volume] {
      if (grants->Acquire(volume, {Access::kExclusive}, absl::Minutes(2)).ok()) ++granted;
    });
  }
  CHECK(Eventually([&] { return rig.array.Waiting() == kNodes; }, absl::Minutes(1)));
  const int before = controller.sink.heartbeats();
  const absl::Time began = absl::Now();
  CHECK(grants->Held(VolumeId(), absl::Now() + absl::Seconds(10)).ok());
  CHECK(absl::Now() - began < absl::Seconds(5));
  CHECK(Eventually([&] { return controller.sink.heartbeats() >= before + 20; }));
  for (const VolumeId& volume : volumes) rig.Vacate(volume);
  for (std::thread& thread : waiting) thread.join();
  CHECK(granted == kNodes);
  // A node counts as silent after 2.5 s.
  CHECK(controller.sink.longest_gap() < absl::Seconds(2));
  UNSCOPED_INFO("longest gap between heartbeats: " << absl::FormatDuration(controller.sink.longest_gap()));
}

}  // namespace lunkeeper
