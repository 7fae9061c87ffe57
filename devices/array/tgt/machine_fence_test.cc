// The fence of a machine at the real array: of every node of its name, whatever instance it calls itself.

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/match.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/heartbeat/fence_notice.h"
#include "devices/heartbeat/heartbeat_block.h"
#include "devices/node_id.h"

namespace lunkeeper::testing {
namespace {

const NodeId kOne("db.0000000000000001"), kTwo("db.0000000000000002"), kNew("db.00000000000000ff");
// Other machines: their names begin like this one's.
const NodeId kLonger("db.e1.0000000000000001"), kOther("db2.0000000000000001");
const NodeId kMachine = MachineId("db");

std::vector<VolumeId> Sorted(std::vector<VolumeId> volumes) {
  std::sort(volumes.begin(), volumes.end());
  return volumes;
}

struct FencedMachine : ClusterFixture {
  // A volume that this node has, and its session with it.
  std::unique_ptr<PlainInitiator> LogIn(const VolumeId& volume, const NodeId& node) {
    const auto grant = Acquire(volume, node);
    REQUIRE(grant.status() == absl::OkStatus());
    auto initiator = PlainInitiator::Login(grant->connection);
    REQUIRE(initiator.ok());
    return *std::move(initiator);
  }
  const Term term = *array->fences().BeginTerm("a person");
};

TEST_CASE_METHOD(FencedMachine,
                 "a machine's fence ends what all its nodes have, and closes its name to new ones") {
  const VolumeId one = Make("one"), two = Make("two"), longer = Make("longer"), other = Make("other");
  const auto first = LogIn(one, kOne), second = LogIn(two, kTwo);
  const auto bystander = LogIn(longer, kLonger), neighbour = LogIn(other, kOther);
  const auto fence = array->fences().FenceNode(term, {.node = kMachine, .all_volumes = true});
  REQUIRE(fence.status() == absl::OkStatus());
  CHECK(fence->volumes == Sorted({one, two}));
  CHECK_FALSE(first->Write(1, 'x'));
  CHECK_FALSE(second->Write(1, 'x'));
  CHECK(bystander->Write(1, 'x'));
  CHECK(neighbour->Write(1, 'x'));
  CHECK(array->grants().ListGrants({})->size() == 2);

  const VolumeId free = Make("free");
  for (const NodeId& node : {kOne, kTwo, kNew})
    CHECK(absl::IsFailedPrecondition(Acquire(free, node).status()));
  CHECK(Acquire(one, kLonger).ok());
  CHECK(Acquire(two, kOther).ok());

  SECTION("also after the agent was started again, until it is lifted") {
    array.reset();
    REQUIRE(Open() == absl::OkStatus());
    array = Cluster();
    CHECK(absl::IsFailedPrecondition(Acquire(free, kNew).status()));
    REQUIRE(array->fences().UnfenceNode(term, kMachine, fence->generation).ok());
    CHECK(Acquire(free, kNew).ok());
  }
}

TEST_CASE_METHOD(FencedMachine, "the fences of a machine and of its node are apart: each is lifted alone") {
  const VolumeId volume = Make("v");
  const auto machine = array->fences().FenceNode(term, {.node = kMachine, .all_volumes = true});
  const auto node = array->fences().FenceNode(term, {.node = kOne});
  REQUIRE(machine.ok());
  REQUIRE(node.ok());
  REQUIRE(array->fences().UnfenceNode(term, kOne, node->generation).ok());
  CHECK(absl::IsFailedPrecondition(Acquire(volume, kOne).status()));
  REQUIRE(array->fences().UnfenceNode(term, kMachine, machine->generation).ok());
  CHECK(Acquire(volume, kOne).ok());
}

TEST_CASE_METHOD(FencedMachine, "a machine may lose some volumes only, and gets no other") {
  const VolumeId taken = Make("taken"), kept = Make("kept"), free = Make("free");
  const auto victim = LogIn(taken, kOne), bystander = LogIn(kept, kTwo);
  REQUIRE(array->fences().FenceNode(term, {.node = kMachine, .volumes = {taken}}).ok());
  CHECK_FALSE(victim->Write(1, 'x'));
  CHECK(bystander->Write(1, 'x'));
  CHECK(absl::IsFailedPrecondition(Acquire(free, kTwo).status()));
}

TEST_CASE_METHOD(FencedMachine, "a node that waits in line is refused once its machine is fenced") {
  const VolumeId volume = Make("v");
  const auto holder = LogIn(volume, kOther);
  absl::Status waited;
  std::thread waiter([&] { waited = Acquire(volume, kNew, absl::Seconds(20)).status(); });
  REQUIRE(array->fences().FenceNode(term, {.node = kMachine, .all_volumes = true}).ok());
  waiter.join();
  CHECK(absl::IsFailedPrecondition(waited));
  CHECK(absl::StrContains(waited.message(), "its machine is fenced"));
}

TEST_CASE_METHOD(FencedMachine, "a machine is no node: it gets no grant and no heartbeat LUN") {
  CHECK(absl::IsInvalidArgument(Acquire(Make("v"), kMachine).status()));
  CHECK(absl::IsInvalidArgument(array->fences().OpenHeartbeatLun({kMachine}).status()));
}

TEST_CASE_METHOD(FencedMachine, "each node of a fenced machine reads so on its heartbeat LUN") {
  const VolumeId one = Make("one"), two = Make("two");
  const auto first = LogIn(one, kOne), second = LogIn(two, kTwo);
  const auto access = array->fences().OpenHeartbeatLun({kOne});
  REQUIRE(access.ok());
  REQUIRE(array->fences().FenceNode(term, {.node = kOne, .volumes = {one}}).ok());
  const auto machine = array->fences().FenceNode(term, {.node = kMachine, .all_volumes = true});
  REQUIRE(machine.ok());
  const FenceNotice wanted{.generation = machine->generation, .volumes = Sorted({one, two})};
  CHECK(Eventually([&] {
    const auto session = LibiscsiSession::Login(*access);
    std::string bytes(2 * kSectorBytes, '\0');
    if (!session.ok() || !(*session)->ReadBlocks(kNoteBlock, bytes).ok()) return false;
    const auto notice = ReadFenceNotice(bytes);
    return notice.ok() && *notice == wanted;
  }));
}

}  // namespace
}  // namespace lunkeeper::testing
