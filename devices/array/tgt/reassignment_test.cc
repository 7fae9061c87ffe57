// A cluster's volumes are given to another one, at an array with a real tgtd.

#include <catch2/catch.hpp>
#include <future>
#include <string>

#include "base/units.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/testing/held_at.h"

namespace lunkeeper::testing {
namespace {

using Catch::Contains;

const NodeId kA("node-a.1"), kB("node-b.1");
const ClusterId kOld("c1"), kNew("c2");

struct ReassignFixture : ClusterFixture {
  absl::StatusOr<Reassigned> Reassign(bool end_grants = false, bool only_check = false) {
    return ArrayFixture::array->Reassign(
        {.from = kOld, .to = kNew, .end_grants = end_grants, .only_check = only_check, .asked_by = "test"});
  }
  std::unique_ptr<Array> other = Cluster(kNew.value());
};

struct HeldCreation {
  const HeldAt held{"array.create.stored"};
};
struct WhileCreating : HeldCreation, ReassignFixture {};

}  // namespace

TEST_CASE_METHOD(ReassignFixture, "the other cluster gets the volumes with their ids and their data") {
  const VolumeId volume = Make("v");
  REQUIRE((*PlainInitiator::Login(Acquire(volume, kA)->connection))->Write(0, 'x'));
  REQUIRE(Release(volume, kA).ok());
  const auto snapshot = array->volumes().CreateSnapshot("s", volume);
  REQUIRE(snapshot.ok());
  CHECK(Reassign(false, /*only_check=*/true)->holdings.volumes == 1);
  CHECK(array->volumes().GetVolume(volume).ok());
  const auto done = Reassign();
  REQUIRE(done.status() == absl::OkStatus());
  CHECK(done->holdings == ClusterHoldings{.volumes = 1, .snapshots = 1, .size_bytes = 32 * kMiB});
  CHECK(array->volumes().ListVolumes("", 0)->items.empty());
  CHECK(other->volumes().GetSnapshot(snapshot->id)->source == volume);
  // To the old cluster it is gone: a deletion there is done, and deletes nothing.
  CHECK(array->volumes().DeleteVolume(volume).ok());
  CHECK(array->volumes().DeleteSnapshot(snapshot->id).ok());
  CHECK(absl::IsNotFound(Acquire(volume, kA).status()));
  const auto grant = other->grants().AcquireGrant({.volume = volume, .node = kB}, absl::ZeroDuration());
  REQUIRE(grant.status() == absl::OkStatus());
  CHECK((*PlainInitiator::Login(grant->connection))->Read(0) == 'x');
  const absl::Status again = Reassign().status();
  CHECK(absl::IsNotFound(again));
  CHECK_THAT(std::string(again.message()), Contains("nothing of cluster c1") && Contains("c2 (1 volumes"));
}

TEST_CASE_METHOD(ReassignFixture, "a volume that a node has stays, unless its grant is to be ended") {
  const VolumeId volume = Make("v");
  const auto grant = Acquire(volume, kA);
  REQUIRE(grant.ok());
  auto writer = PlainInitiator::Login(grant->connection);
  REQUIRE((writer.ok() && (*writer)->Write(0, 'x')));
  const absl::Status refused = Reassign().status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Contains(volume.value() + " by node " + kA.value()));
  CHECK(Reassign(/*end_grants=*/true, /*only_check=*/true)->fenced == std::vector{kA});
  CHECK((*writer)->Write(1, 'y'));  // nothing was done
  const auto done = Reassign(/*end_grants=*/true);
  REQUIRE(done.status() == absl::OkStatus());
  CHECK(done->fenced == std::vector{kA});
  CHECK_FALSE((*writer)->Write(0, 'z'));
  CHECK(array->fences().ListFences()->front().node == kA);
  const auto now = other->grants().AcquireGrant({.volume = volume, .node = kA}, absl::ZeroDuration());
  REQUIRE(now.status() == absl::OkStatus());  // a fence is of one cluster's node
  const auto reader = PlainInitiator::Login(now->connection);
  REQUIRE(reader.ok());
  CHECK((*reader)->Read(0) == 'x');
  CHECK((*reader)->Read(1) == 'y');
}

TEST_CASE_METHOD(ReassignFixture, "a quota does not keep volumes from the cluster, but counts them") {
  Make("v");
  options.limits.quotas.named[kNew] = 20 * kMiB;
  array.reset();
  other.reset();
  Close();
  REQUIRE(Open() == absl::OkStatus());
  array = Cluster(kOld.value());
  other = Cluster(kNew.value());
  Make("w");
  REQUIRE(Reassign().status() == absl::OkStatus());
  CHECK(other->volumes().ListVolumes("", 0)->items.size() == 2);
  CHECK(other->volumes().GetCapacity()->creatable_bytes == 0);
  CHECK(absl::IsResourceExhausted(other->volumes().CreateVolume(Spec("x", 1)).status()));
}

TEST_CASE_METHOD(ReassignFixture, "two clusters have to be named, and the first has to have something") {
  const auto status = [this](const char* from, const char* to) {
    return ArrayFixture::array->Reassign({.from = ClusterId(from), .to = ClusterId(to), .asked_by = "test"})
        .status();
  };
  CHECK(absl::IsInvalidArgument(status("c1", "c1")));
  CHECK(absl::IsInvalidArgument(status("c1", "")));
  CHECK_THAT(std::string(status("c3", "c1").message()), Contains("has something of no cluster"));
}

// The call gives the file its name, and finds the volume by its cluster before it does.
TEST_CASE_METHOD(WhileCreating, "a volume goes to the other cluster only once its creation has ended") {
  held.Arm();
  auto made = std::async(std::launch::async, [&] { return array->volumes().CreateVolume(Spec("v", 16)); });
  CHECK(Eventually([&] { return held.IsReached(); }));
  const absl::Status during = Reassign().status();
  held.LetGo();
  CHECK(made.get().status() == absl::OkStatus());
  CHECK(absl::IsAborted(during));
  REQUIRE(Reassign().status() == absl::OkStatus());
  const VolumeId volume = other->volumes().ListVolumes("", 0)->items.at(0).id;
  CHECK(other->grants().AcquireGrant({.volume = volume, .node = kA}, absl::ZeroDuration()).status() ==
        absl::OkStatus());
}

}  // namespace lunkeeper::testing
