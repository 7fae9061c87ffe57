#include "devices/array/tgt_array.h"

#include <catch2/catch.hpp>

#include "devices/array/testing/array_fixture.h"

namespace lunkeeper::testing {
namespace {

const NodeId kA("node-a.1"), kB("node-b.1");

GrantRequest For(const Volume& volume, const NodeId& node) {
  return {.volume = volume.id, .node = node, .access = Access::kExclusive, .owner = GrantOwner::kNode};
}

TEST_CASE("a volume is made, granted, written, released and deleted") {
  ArrayFixture fixture;
  REQUIRE(fixture.Open().ok());
  const auto array = fixture.Cluster();
  const auto volume = array->CreateVolume(Spec("v", 64));
  REQUIRE(volume.ok());
  const auto grant = array->Acquire(For(*volume, kA), absl::ZeroDuration());
  REQUIRE(grant.status() == absl::OkStatus());
  {
    const auto initiator = PlainInitiator::Login(grant->connection);
    REQUIRE(initiator.status() == absl::OkStatus());
    CHECK((*initiator)->SizeBytes() == 64 << 20);
    CHECK((*initiator)->Identity().serial == volume->serial);
    CHECK((*initiator)->Identity().vendor == "LUNKEEPR");
    CHECK((*initiator)->Write(7, 'x'));
    CHECK((*initiator)->Read(7) == 'x');
    CHECK(absl::IsFailedPrecondition(array->DeleteVolume(volume->id)));
    CHECK(array->Release(volume->id, kA, GrantOwner::kNode) == absl::OkStatus());
    CHECK_FALSE((*initiator)->Write(7, 'y'));
  }
  CHECK(absl::IsPermissionDenied(PlainInitiator::Login(grant->connection).status()));
  CHECK(array->DeleteVolume(volume->id) == absl::OkStatus());
  CHECK(array->ListVolumes("", 0)->items.empty());
}

}  // namespace
}  // namespace lunkeeper::testing
