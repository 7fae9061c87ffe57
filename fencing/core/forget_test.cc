// What the core keeps of nodes that come and go.
#include <catch2/catch.hpp>

#include "fencing/core/core.h"
#include "fencing/core/decide.h"
#include "fencing/core/mount_deaths.h"

namespace lunkeeper::fencing {
namespace {

NodeId Instance(const std::string& name, int number) {
  auto digits = std::to_string(number);
  return NodeId(name + "." + std::string(16 - digits.size(), '0') + digits);
}

// A core to which nodes send heartbeats.
struct HeartbeatRig {
  void Hear(const NodeId& node) {
    core.Step({now, Heartbeat{node, "boot", ++sequence, true, {}, {}, {}, {}}});
  }
  void See(const NodeId& id) {
    Node node;
    node.name = NameOf(id);
    node.node_id = id;
    core.Step({now, NodeSeen{node}});
  }
  void Wait(Span time) {
    for (const Instant end = now + time; now < end; now += 30_s) core.Step({now, Tick{}});
  }
  size_t CountNodes() const { return core.state().evidence.nodes().size(); }

  Instant now{100_s};
  uint64_t sequence = 0;
  Core core{Settings(), "me"};
};

}  // namespace

TEST_CASE("that a record is not stored is said no more once it is, whatever the record is for") {
  State state{Settings()};
  PutNodeFence call;
  call.fence.node = NodeId("n1.i");
  for (int i = 0; i < 4; ++i) NoteRecordAnswer(state, call, Outcome::kFailed);
  REQUIRE(state.said.contains({ReportKind::kRefused, call.fence.node}));
  NoteRecordAnswer(state, call, Outcome::kOk);
  CHECK(state.said.empty());
}

// It may have waited for a worker behind others that were held, and is given up while it is held itself.
TEST_CASE("that a record is not stored is also said where its answers come later than any is waited for") {
  const NodeId node = Instance("n1", 1);
  const ArrayId array("a1");
  HeartbeatRig rig;
  rig.See(node);
  rig.core.Step({rig.now, ApiSynced{}});
  int writes = 0, refusals = 0;
  const auto step = [&](decltype(Event::what) what, const auto& self) -> void {
    for (const Action& action : rig.core.Step({rig.now, std::move(what)})) {
      const auto* report = std::get_if<Report>(&action.what);
      refusals += report && report->refusal == Refusal::kUnrecorded ? 1 : 0;
      writes += std::holds_alternative<PutNodeFence>(action.what) ? 1 : 0;
      if (action.id == 0 || std::holds_alternative<PutNodeFence>(action.what)) continue;
      Done done;
      done.action = action.id, done.term = 1, done.version = Version(std::to_string(action.id));
      self(done, self);
    }
  };
  step(LeaseSeen{"", Version("1"), rig.now}, step);
  for (const Instant end = rig.now + 125_s; rig.now < end; rig.now += 250_ms) {
    step(ArrayView{array, rig.now, {}, {{node, 7, {VolumeId("v1")}}}}, step);
    step(ApiAlive{}, step);
    step(Tick{}, step);
    if (writes < 5) CHECK(refusals == 0);
  }
  CHECK(writes == 5);
  CHECK(refusals == 1);
}

TEST_CASE("a machine that sends heartbeats as a thousand instances fills no memory with them") {
  HeartbeatRig rig;
  const NodeId holder = Instance("n1", 0);
  rig.Hear(holder);
  rig.core.Step({rig.now, ArrayView{ArrayId("a1"), rig.now, {{VolumeId("v1"), holder, 1}}, {}}});
  for (int i = 1; i <= 1000; ++i) {
    rig.now += 10_ms;
    rig.Hear(Instance("n1", i));
  }
  rig.Hear(Instance("n2", 0));
  CHECK(rig.CountNodes() <= 20);
  CHECK(rig.core.state().evidence.nodes().contains(holder));  // what it holds is the array's word
  CHECK(rig.core.state().evidence.nodes().contains(Instance("n1", 1000)));
  CHECK(rig.core.state().evidence.nodes().contains(Instance("n2", 0)));
}

TEST_CASE("nodes that are gone for an hour are forgotten, and no witnesses of the self-test any more") {
  HeartbeatRig rig;
  for (int i = 0; i < 10; ++i) {
    const auto name = "n" + std::to_string(i);
    rig.See(Instance(name, 1));
    rig.Hear(Instance(name, 1));
  }
  rig.core.Step({rig.now, ApiSynced{}});
  const auto remaining = Instance("n0", 1), held = Instance("n1", 1), recorded = Instance("n2", 1);
  rig.core.Step(
      {rig.now,
       ArrayView{ArrayId("a1"), rig.now, {{VolumeId("v1"), held, 1}}, {{Instance("n3", 1), 7, {}}}}});
  NodeFence record;
  record.node = recorded;
  rig.core.Step({rig.now, FenceSeen{record}});
  for (int i = 1; i < 10; ++i) rig.core.Step({rig.now, NodeGone{NodeName("n" + std::to_string(i))}});
  rig.Wait(3500_s);
  CHECK(rig.CountNodes() == 10);
  rig.Wait(300_s);
  CHECK(rig.CountNodes() == 3);
  for (const NodeId& node : {remaining, held, recorded})
    CHECK(rig.core.state().evidence.nodes().contains(node));
}

TEST_CASE("nodes that died fenced and are gone for good fail no self-test after an hour") {
  const bool cannot_end = GENERATE(false, true);  // as an array of theirs is gone for good, too
  HeartbeatRig rig;
  const auto live = [&] {
    for (int i = 0; i < 5; ++i) rig.Hear(Instance("live" + std::to_string(i), 1));
  };
  const auto self_test = [&] {
    const State& state = rig.core.state();
    return state.limits.SelfTest(Instance("live0", 1), state.evidence, state.now);
  };
  for (int i = 0; i < 5; ++i) rig.See(Instance("live" + std::to_string(i), 1));
  live();
  std::vector<ArrayFence> fences;
  for (int i = 0; i < 20; ++i) {
    const auto dead = Instance("spot" + std::to_string(i), 1);
    rig.See(dead);
    rig.Hear(dead);
    fences.push_back({dead, static_cast<Generation>(7 + i), {}});
    NodeFence record;
    record.node = dead;
    record.volumes[ArrayId("gone")] = {VolumeId("v1")};
    if (cannot_end) rig.core.Step({rig.now, FenceSeen{record}});
    rig.core.Step({rig.now, NodeGone{NameOf(dead)}});
  }
  rig.core.Step({rig.now, ApiSynced{}});
  rig.core.Step({rig.now, ArrayView{ArrayId("a1"), rig.now, {}, fences}});
  const auto come_back = [&] {
    rig.core.Step({rig.now, ApiSynced{}});
    for (int i = 0; i < 40; ++i, rig.now += 250_ms) {
      live();
      rig.core.Step({rig.now, ApiAlive{}});
      rig.core.Step({rig.now, Tick{}});
    }
  };
  rig.Wait(3000_s);
  come_back();
  CHECK(self_test() == "too few of the other nodes are heard");
  rig.Wait(3700_s);
  come_back();
  CHECK(self_test().empty());
}

TEST_CASE("a lease that comes after its Node was deleted keeps no node alive") {
  HeartbeatRig rig;
  const auto node = Instance("n1", 1);
  rig.See(node);
  rig.Hear(node);
  rig.core.Step({rig.now, ApiSynced{}});
  rig.core.Step({rig.now, NodeGone{NameOf(node)}});
  rig.core.Step({rig.now, KubeletLease{NameOf(node), Version("2"), KubeletTime(1_s)}});
  rig.Wait(3700_s);
  CHECK(rig.CountNodes() == 0);
}

TEST_CASE("a lease that is listed before the nodes are, and has none any more, keeps no node alive") {
  HeartbeatRig rig;
  const auto gone = Instance("n1", 1), there = Instance("n2", 1);
  for (const NodeId& node : {gone, there})
    rig.core.Step({rig.now, KubeletLease{NameOf(node), Version("1"), KubeletTime(1_s)}});
  rig.See(there);
  rig.core.Step({rig.now, ApiSynced{}});
  rig.Hear(gone);
  rig.Hear(there);
  rig.Wait(3700_s);
  CHECK(rig.CountNodes() == 1);
  CHECK(rig.core.state().evidence.nodes().contains(there));
}

TEST_CASE("volumes that nodes waited for once are forgotten") {
  HeartbeatRig rig;
  for (int i = 0; i < 100; ++i)
    rig.core.Step(
        {rig.now, VolumeWanted{ArrayId("a1"), VolumeId("v" + std::to_string(i)), Instance("n1", 1)}});
  CHECK(rig.core.state().wanted.size() == 100);
  rig.Wait(120_s);
  CHECK(rig.core.state().wanted.empty());
}

TEST_CASE("a volume that was deleted before its charges could be stored is held back for an hour at most") {
  State state{Settings()};
  state.now = Instant(100_s);
  const VolumeId volume("v1");
  for (const auto& nodes : {ChargedNodes{Instance("n1", 1)}, {Instance("n1", 1), Instance("n2", 1)}})
    NoteChargeAnswer(state, {volume, nodes}, Outcome::kGone);
  state.now += 3500_s;
  TendCharges(state);
  CHECK(state.cluster.IsHeldBack(volume));
  CHECK(DescribeHeldBack(state, volume).find("it has no PersistentVolume") != std::string::npos);
  state.now += 200_s;
  TendCharges(state);
  CHECK(state.cluster.charged().empty());
  CHECK(state.charges.empty());
}

}  // namespace lunkeeper::fencing
