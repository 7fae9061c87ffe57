#include "devices/array/testing/fake_array.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>

#include "base/testing/test_host.h"
#include "devices/array/testing/array_contract.h"
#include "devices/array/testing/block_contract.h"
#include "devices/array/testing/group_contract.h"
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

TEST_CASE("the array in memory keeps what arrays promise of volumes, grants and fences") {
  FakeArray array;
  testing::CheckArray(array, {kNodeA, kNodeB, NodeId("c.3")});
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
