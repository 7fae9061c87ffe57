#include "devices/array/testing/fake_array.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>

#include "base/testing/test_host.h"
#include "devices/array/testing/block_contract.h"
#include "devices/array/testing/group_contract.h"
#include "devices/array/testing/modify_contract.h"
#include "devices/array/testing/name_contract.h"

namespace lunkeeper {
namespace {

const NodeId kNodeA("a.0000000000000001");
const NodeId kNodeB("b.0000000000000002");
constexpr absl::Duration kLong = absl::Seconds(30);

VolumeId MakeVolume(FakeArray& array, const std::string& name) {
  return array
      .CreateVolume({.name = name, .size_bytes = 1 << 20, .source_snapshot = {}, .source_volume = {}})
      ->id;
}

GrantRequest For(const VolumeId& volume, const NodeId& node, Access access = Access::kExclusive) {
  return {volume, node, access, GrantOwner::kNode};
}

void AwaitWaiting(FakeArray& array, size_t count) {
  REQUIRE(testing::Eventually([&] { return array.Waiting() == count; }));
}

std::future<absl::StatusOr<Grant>> AcquireLater(FakeArray& array, const GrantRequest& request,
                                                absl::Duration wait = kLong) {
  return std::async(std::launch::async,
                    [&array, request, wait] { return array.AcquireGrant(request, wait); });
}

}  // namespace

TEST_CASE("an exclusive volume goes to one node; the other is told who has it") {
  FakeArray array;
  const VolumeId volume = MakeVolume(array, "v");
  const auto first = array.AcquireGrant(For(volume, kNodeA), absl::ZeroDuration());
  REQUIRE(first.ok());
  CHECK(array.AcquireGrant(For(volume, kNodeA), absl::ZeroDuration())->generation == first->generation);

  const auto second = array.AcquireGrant(For(volume, kNodeB), absl::ZeroDuration());
  CHECK(absl::IsFailedPrecondition(second.status()));
  CHECK_THAT(std::string(second.status().message()), Catch::Contains(kNodeA.value()));
  CHECK(absl::IsDeadlineExceeded(array.AcquireGrant(For(volume, kNodeB), absl::Milliseconds(20)).status()));
}

TEST_CASE("a volume in memory is modified") {
  FakeArray array;
  testing::CheckModify(array, kNodeA);
}

TEST_CASE("a waiting node gets the volume when it is released, in order of arrival") {
  FakeArray array;
  const VolumeId volume = MakeVolume(array, "v");
  REQUIRE(array.AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  auto second = AcquireLater(array, For(volume, kNodeB));
  AwaitWaiting(array, 1);
  auto third = AcquireLater(array, For(volume, NodeId("c.3")));
  AwaitWaiting(array, 2);

  REQUIRE(array.ReleaseGrant(volume, kNodeA, GrantOwner::kNode, kAnyGeneration).ok());
  REQUIRE(second.get().ok());
  CHECK(array.Waiting() == 1);
  REQUIRE(array.ReleaseGrant(volume, kNodeB, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(third.get().ok());
}

TEST_CASE("a caller who has gone is given nothing, and the next in line is") {
  FakeArray array;
  const VolumeId volume = MakeVolume(array, "v");
  REQUIRE(array.AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  std::atomic<bool> gone = false;
  GrantRequest request = For(volume, kNodeB);
  request.abandoned = [&] { return gone.load(); };
  auto second = AcquireLater(array, request);
  AwaitWaiting(array, 1);
  auto third = AcquireLater(array, For(volume, NodeId("c.3")));
  AwaitWaiting(array, 2);
  gone = true;
  CHECK(absl::IsCancelled(second.get().status()));
  REQUIRE(array.ReleaseGrant(volume, kNodeA, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(third.get().ok());
}

TEST_CASE("readers come in beside shared writers; an exclusive one waits for them all") {
  FakeArray array;
  const VolumeId volume = MakeVolume(array, "v");
  REQUIRE(array.AcquireGrant(For(volume, kNodeB, Access::kSharedWrite), absl::ZeroDuration()).ok());
  REQUIRE(array.AcquireGrant(For(volume, kNodeA, Access::kReadOnly), absl::ZeroDuration()).ok());
  CHECK(absl::IsFailedPrecondition(array.AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).status()));
  auto exclusive = AcquireLater(array, For(volume, NodeId("c.3")));
  AwaitWaiting(array, 1);
  REQUIRE(array.ReleaseGrant(volume, kNodeA, GrantOwner::kNode, kAnyGeneration).ok());
  REQUIRE(array.ReleaseGrant(volume, kNodeB, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(exclusive.get().ok());
}

TEST_CASE("only the side that took a grant releases it") {
  FakeArray array;
  const VolumeId volume = MakeVolume(array, "v");
  REQUIRE(array.AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  CHECK(array.ReleaseGrant(volume, kNodeA, GrantOwner::kOrchestrator, kAnyGeneration).ok());
  CHECK(array.ListGrants({volume, {}})->size() == 1);
  CHECK(absl::IsFailedPrecondition(array.DeleteVolume(volume)));
  CHECK(array.ReleaseGrant(volume, kNodeA, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(array.ListGrants({volume, {}})->empty());
  CHECK(array.DeleteVolume(volume).ok());
}

TEST_CASE("a late release of an earlier grant leaves the newer one alone") {
  FakeArray array;
  const VolumeId volume = MakeVolume(array, "v");
  const auto first = array.AcquireGrant(For(volume, kNodeA), absl::ZeroDuration());
  REQUIRE(first.ok());
  REQUIRE(array.ReleaseGrant(volume, kNodeA, GrantOwner::kNode, first->generation).ok());
  const auto second = array.AcquireGrant(For(volume, kNodeA), absl::ZeroDuration());
  REQUIRE(second.ok());
  CHECK(array.ReleaseGrant(volume, kNodeA, GrantOwner::kNode, first->generation).ok());
  CHECK(array.ListGrants({volume, {}})->size() == 1);
  CHECK(array.ReleaseGrant(volume, kNodeA, GrantOwner::kNode, second->generation).ok());
  CHECK(array.ListGrants({volume, {}})->empty());
}

TEST_CASE(
    "a fenced node is refused a grant, also one it waits for, and the waiter behind it gets the volume") {
  FakeArray array;
  const VolumeId volume = MakeVolume(array, "v");
  const VolumeId other = MakeVolume(array, "w");
  REQUIRE(array.AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  REQUIRE(array.AcquireGrant(For(other, kNodeB), absl::ZeroDuration()).ok());
  auto refused = AcquireLater(array, For(other, kNodeA));
  auto replacement = AcquireLater(array, For(volume, kNodeB));
  AwaitWaiting(array, 2);

  const Term term = *array.BeginTerm("test");
  const auto fence = array.FenceNode(term, {kNodeA, {volume}});
  REQUIRE(fence.ok());
  CHECK(absl::IsFailedPrecondition(refused.get().status()));
  CHECK(replacement.get().ok());
  CHECK(absl::IsFailedPrecondition(array.AcquireGrant(For(other, kNodeA), kLong).status()));

  CHECK(absl::IsFailedPrecondition(array.UnfenceNode(term, kNodeA, fence->generation + 1)));
  CHECK(array.UnfenceNode(term, kNodeA, fence->generation).ok());
  CHECK(array.UnfenceNode(term, kNodeA, fence->generation).ok());
  CHECK(array.ListFences()->empty());
}

TEST_CASE("a fence that cannot drain is not reported as done, stays, and ends when repeated") {
  FakeArray array;
  const VolumeId volume = MakeVolume(array, "v");
  REQUIRE(array.AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  const Term term = *array.BeginTerm("test");
  array.HoldDrains(true);
  CHECK(absl::IsDeadlineExceeded(array.FenceNode(term, {kNodeA, {volume}}).status()));
  CHECK(array.ListFences()->size() == 1);
  CHECK(absl::IsFailedPrecondition(array.AcquireGrant(For(volume, kNodeB), absl::ZeroDuration()).status()));
  array.HoldDrains(false);
  CHECK(array.FenceNode(term, {kNodeA, {volume}}).ok());
  CHECK(array.AcquireGrant(For(volume, kNodeB), absl::ZeroDuration()).ok());
}

TEST_CASE("an older term is refused") {
  FakeArray array;
  const Term old_term = *array.BeginTerm("one");
  const Term term = *array.BeginTerm("two");
  CHECK(term > old_term);
  CHECK(absl::IsFailedPrecondition(array.FenceNode(old_term, {kNodeA, {}}).status()));
  CHECK(absl::IsFailedPrecondition(array.UnfenceNode(old_term, kNodeA, 1)));
}

TEST_CASE("creating is idempotent by name and refuses another specification") {
  FakeArray array;
  VolumeSpec spec;
  spec.name = "v";
  spec.size_bytes = (1 << 20) + 1;
  const auto first = array.CreateVolume(spec);
  CHECK(first->spec.size_bytes == 2 << 20);
  CHECK(array.CreateVolume(spec)->id == first->id);
  spec.provisioning = Provisioning::kThick;
  CHECK(absl::IsAlreadyExists(array.CreateVolume(spec).status()));
}

TEST_CASE("lists come in pages, and a foreign token is refused") {
  FakeArray array;
  for (int i = 0; i < 5; ++i) MakeVolume(array, std::to_string(i));
  const auto first = array.ListVolumes("", 2);
  REQUIRE(first->items.size() == 2);
  const auto rest = array.ListVolumes(first->next_token, 0);
  CHECK(rest->items.size() == 3);
  CHECK(rest->next_token.empty());
  CHECK(absl::IsAborted(array.ListVolumes("invalid-token", 0).status()));
  const auto exact = array.ListVolumes("", 5);
  CHECK(exact->next_token.empty());
}

TEST_CASE("clones and snapshots are at least as large as their source, and live on without it") {
  FakeArray array;
  const VolumeId source = MakeVolume(array, "v");
  const auto snapshot = array.CreateSnapshot("s", source);
  REQUIRE(snapshot.ok());
  CHECK(array.CreateSnapshot("s", source)->id == snapshot->id);
  CHECK(absl::IsAlreadyExists(array.CreateSnapshot("s", MakeVolume(array, "w")).status()));
  REQUIRE(array.ExpandVolume(source, 5 << 20)->spec.size_bytes == 5 << 20);

  VolumeSpec clone;
  clone.name = "clone";
  clone.size_bytes = 1 << 20;
  clone.source_volume = source;
  CHECK(absl::IsOutOfRange(array.CreateVolume(clone).status()));
  clone.size_bytes = 5 << 20;
  CHECK(array.CreateVolume(clone).ok());
  REQUIRE(array.DeleteVolume(source).ok());
  CHECK(array.ListSnapshots(source, "", 0)->items.size() == 1);
  clone.name = "second";
  CHECK(absl::IsNotFound(array.CreateVolume(clone).status()));
}

TEST_CASE("a full pool refuses thick volumes only") {
  FakeArray array({.pool_bytes = 10 << 20, .largest_volume_bytes = 20 << 20});
  VolumeSpec spec;
  spec.name = "thick";
  spec.size_bytes = 8 << 20;
  spec.provisioning = Provisioning::kThick;
  REQUIRE(array.CreateVolume(spec).ok());
  CHECK(array.GetCapacity()->available_bytes == 2 << 20);
  spec.name = "second";
  CHECK(absl::IsResourceExhausted(array.CreateVolume(spec).status()));
  spec.provisioning = Provisioning::kThin;
  CHECK(array.CreateVolume(spec).ok());
  CHECK(absl::IsOutOfRange(array.ExpandVolume(array.CreateVolume(spec)->id, 21 << 20).status()));
}

TEST_CASE("an array that does not serve ends the waits too") {
  FakeArray array;
  const VolumeId volume = MakeVolume(array, "v");
  REQUIRE(array.AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  auto waiting = AcquireLater(array, For(volume, kNodeB));
  AwaitWaiting(array, 1);
  array.FailWith(absl::UnavailableError("the array is not serving"));
  CHECK(absl::IsUnavailable(waiting.get().status()));
  CHECK(absl::IsUnavailable(array.GetCapacity().status()));
  array.FailWith(absl::OkStatus());
  CHECK(array.GetCapacity().ok());
}

TEST_CASE("the array in memory keeps what groups of snapshots promise") {
  FakeArray array, other;
  testing::CheckGroupLife(array);
  testing::CheckGroupRefusals(array);
  testing::CheckRestoreFromMember(array);
  testing::CheckGroupsAreSeparate(array, other);
}

TEST_CASE("the array in memory finds names as promised") {
  FakeArray array, other;
  testing::CheckNames(array, other);
}

TEST_CASE("the array in memory lists the blocks of its snapshots as promised") {
  FakeArray array, other;
  const testing::BlockWriter node = {
      .write = [&](const VolumeId& volume, uint64_t offset) { array.WriteBlock(volume, offset); },
      .discard = [&](const VolumeId& volume, uint64_t offset) { array.WriteBlock(volume, offset, true); }};
  testing::CheckBlockLists(array, node);
  testing::CheckBlocksOfGrownVolume(array, node);
  testing::CheckBlockRefusals(array, other);
}

}  // namespace lunkeeper
