// Pods whose device failed for good on a machine that two nodes, its instances, have been.
#include <algorithm>
#include <catch2/catch.hpp>

#include "fencing/core/core.h"

namespace lunkeeper::fencing {
namespace {

const NodeId kInstanceBefore("n1.0000000000000001"), kInstanceNow("n1.0000000000000002");
const ArrayId kSharedOn("a1");
const VolumeId kSharedVolume("v1");

// A leader, whose calls succeed at once.
struct KickRig {
  void Step(decltype(Event::what) what) {
    for (const Action& action : core.Step({now, std::move(what)})) {
      deletions += std::holds_alternative<DeletePod>(action.what) ? 1 : 0;
      if (action.id == 0) continue;
      Done done;
      done.action = action.id, done.term = 1, done.version = Version(std::to_string(action.id));
      Step(done);
    }
  }
  // The machine is kInstanceNow, and has a pod.
  void Begin() {
    Node node;
    node.name = NameOf(kInstanceNow), node.node_id = kInstanceNow, node.ready = true;
    Pod pod;
    pod.id = PodId("default/db-0"), pod.uid = Uid("p"), pod.node = node.name, pod.running = true;
    pod.owner_kind = "StatefulSet", pod.volumes[kSharedOn] = {kSharedVolume};
    Step(NodeSeen{node});
    Step(PodSeen{pod});
    Step(ApiSynced{});
    Step(LeaseSeen{"", Version("1"), now});
  }
  // Of the instance before no sign of life comes; `holders` have a grant.
  void RunWithFailedDevice(const std::vector<NodeId>& holders) {
    for (const Instant end = now + 20_s; now < end; now += 250_ms) {
      std::vector<Holding> holdings;
      for (const auto& holder : holders) holdings.push_back({kSharedVolume, holder, 1});
      Step(Heartbeat{
          kInstanceNow, "boot", ++sequence, true, {kSharedVolume}, {kSharedVolume}, {kSharedVolume}, {}});
      Step(ArrayView{kSharedOn, now, holdings, {}});
      Step(ApiAlive{});
      Step(Tick{});
    }
  }

  int deletions = 0;
  uint64_t sequence = 0;
  Instant now{100_s};
  Core core{Settings(), "me"};
};

}  // namespace

TEST_CASE("a pod gets a new device although an instance of before still has a grant of the shared volume") {
  KickRig rig;
  rig.Begin();
  rig.RunWithFailedDevice({kInstanceBefore, kInstanceNow});
  CHECK(rig.deletions == 1);
}

TEST_CASE("a pod whose volume an instance of before alone has is that one's, whatever device failed here") {
  KickRig rig;
  rig.Begin();
  rig.RunWithFailedDevice({kInstanceBefore});
  CHECK(rig.deletions == 0);
}

}  // namespace lunkeeper::fencing
