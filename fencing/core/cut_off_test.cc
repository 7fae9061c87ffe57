// Pods on a node that is back, whose devices an array has cut off, or seems to have.
#include <algorithm>
#include <catch2/catch.hpp>

#include "fencing/core/core.h"

namespace lunkeeper::fencing {
namespace {

const NodeId kReturned("n1.0000000000000001");
const ArrayId kLifted("a1"), kAway("a2");
const VolumeSet kVolume = {VolumeId("v1")};

// A leader. Its calls succeed at once, but for the removal of the NodeFence.
struct CutOffRig {
  void Step(decltype(Event::what) what) {
    for (const Action& action : core.Step({now, std::move(what)})) {
      deletions += std::holds_alternative<DeletePod>(action.what) ? 1 : 0;
      if (action.id == 0 || std::holds_alternative<RemoveNodeFence>(action.what)) continue;
      Done done;
      done.action = action.id, done.term = 1, done.version = Version(std::to_string(action.id));
      if (const auto* fence = std::get_if<FenceNode>(&action.what))
        done.fence = ArrayFence{fence->node, 9, fence->volumes};
      Step(done);
    }
  }
  void Hear(const VolumeSet& present) {
    Step(Heartbeat{kReturned, "boot", ++sequence, true, {}, {}, present, {{kLifted, 3}, {kAway, 1}}});
  }
  // The node is back, and the fence is lifted where the array answers.
  void Begin() {
    Node node;
    node.name = NameOf(kReturned), node.node_id = kReturned;
    NodeFence record;
    record.node = kReturned, record.uid = Uid("u"), record.version = Version("5");
    record.volumes = {{kLifted, kVolume}, {kAway, {VolumeId("w1")}}};
    record.generations = {{kLifted, 3}, {kAway, 1}};
    record.phase = Phase::kCleaning;
    Hear({});
    Step(ArrayView{kAway, now, {}, {{kReturned, 1, {VolumeId("w1")}}}});
    Step(NodeSeen{node});
    Step(FenceSeen{record});
    Step(ApiSynced{});
    Step(ArrayView{kLifted, now, {}, {}});
    Step(LeaseSeen{"", Version("1"), now});
    now += 250_ms;
    Step(Tick{});
    Step(ArrayLost{kAway});
    Pod pod;
    pod.id = PodId("default/db-0"), pod.uid = Uid("p"), pod.node = NameOf(kReturned), pod.running = true;
    pod.owner_kind = "StatefulSet", pod.volumes[kLifted] = kVolume;
    Step(PodSeen{pod});
    now += 250_ms;
    Step(ArrayView{kLifted, now, {}, {}});
  }

  int deletions = 0;
  uint64_t sequence = 0;
  Instant now{100_s};
  Core core{Settings(), "me"};
};

}  // namespace

TEST_CASE("a pod whose volume was granted anew since the last look is not asked to leave") {
  CutOffRig rig;
  rig.Begin();
  rig.now += 250_ms;
  rig.Hear(kVolume);
  rig.Step(Tick{});
  CHECK(rig.deletions == 0);
  SECTION("the next look shows the grant") {
    rig.Step(ArrayView{kLifted, rig.now, {{VolumeId("v1"), kReturned, 1}}, {}});
    rig.Step(Tick{});
    CHECK(rig.deletions == 0);
  }
  SECTION("it was not granted, and the device is one that the fence has cut off") {
    rig.now += 400_ms;
    rig.Hear(kVolume);  // again, and no other look comes
    rig.Step(Tick{});
    CHECK(rig.deletions == 0);
    rig.Step(ArrayView{kLifted, rig.now, {}, {}});
    rig.now += 100_ms;
    rig.Hear(kVolume);
    rig.Step(Tick{});
    CHECK(rig.deletions == 1);
  }
}

}  // namespace lunkeeper::fencing
