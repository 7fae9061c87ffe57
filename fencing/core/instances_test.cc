#include "fencing/core/instances.h"

#include <catch2/catch.hpp>

#include "fencing/core/evidence.h"

namespace lunkeeper::fencing {
namespace {

const NodeId kEarly("db.0000000000000001"), kLate("db.f000000000000001"), kOther("db.e1.0000000000000001"),
    kLonger("dba.0000000000000001");

}  // namespace

TEST_CASE("the instances of a machine are found whatever other machines are called") {
  const std::map<NodeId, int> nodes = {{kEarly, 1}, {kLate, 2}, {kOther, 3}, {kLonger, 4}};
  const auto instances = InstancesOf(nodes, NodeName("db"));
  REQUIRE(instances.size() == 2);
  CHECK(instances[0]->second == 1);
  CHECK(instances[1]->second == 2);
  REQUIRE(InstancesOf(nodes, NodeName("db.e1")).size() == 1);
  CHECK(InstancesOf(nodes, NodeName("db.e1"))[0]->second == 3);
  CHECK(InstancesOf(nodes, NodeName("d")).empty());
}

TEST_CASE("a node's kubelet is seen whatever other machines are called") {
  const Settings settings;
  Evidence evidence(settings);
  constexpr Instant kNow(1_s);
  evidence.Observe(kNow);
  evidence.ApiAnswers(kNow);
  for (const auto& id : {kLate, kOther}) {
    Heartbeat heartbeat;
    heartbeat.node = id;
    heartbeat.sequence = 1;
    evidence.NoteEvent(std::move(heartbeat), kNow);
    CHECK(evidence.SignalsOf(id, kNow).kubelet == Kubelet::kNotReady);  // nobody has shown it yet
  }
  for (const auto& id : {kLate, kOther}) {
    Node node;
    node.name = NameOf(id);
    node.node_id = id;
    evidence.NoteEvent(NodeSeen{node}, kNow);
    CHECK(evidence.SignalsOf(id, kNow).kubelet == Kubelet::kReady);
  }
}

}  // namespace lunkeeper::fencing
