#include "devices/array/tgt/cluster_catalogue.h"

#include <catch2/catch.hpp>

#include "base/testing/test_host.h"
#include "devices/array/tgt/catalogue.h"

namespace lunkeeper {
namespace {

using Catch::Contains;

const ClusterId kOld("old"), kNew("new");

struct TwoClusters {
  VolumeId Add(const ClusterId& cluster, const std::string& name, const VolumeId& copied = VolumeId()) {
    VolumeRow row;
    row.cluster = cluster;
    row.copying = !copied.empty();
    row.volume.spec.source_volume = copied;
    row.volume.id = VolumeId("a1-v" + cluster.value() + name);
    row.volume.spec.name = name;
    row.volume.spec.size_bytes = 10;
    REQUIRE(catalogue->volumes().InsertVolume(row) == absl::OkStatus());
    return row.volume.id;
  }
  Snapshot Taken(const VolumeId& source, const std::string& name) {
    Snapshot snapshot;
    snapshot.id = SnapshotId("a1-s" + name);
    snapshot.name = name;
    snapshot.source = source;
    snapshot.size_bytes = 10;
    snapshot.ready = true;
    return snapshot;
  }
  absl::Status Reassign() {
    return catalogue->clusters().ReassignAll(kOld, kNew, catalogue->clusters().ListHoldings()->at(kOld));
  }

  const testing::TempDir directory;
  std::unique_ptr<Catalogue> catalogue = Catalogue::Open(directory / "catalogue.db", "a1").value();
};

}  // namespace

TEST_CASE_METHOD(TwoClusters, "volumes, snapshots and groups of one cluster become those of another") {
  const VolumeId volume = Add(kOld, "v"), of_third = Add(ClusterId("third"), "v");
  REQUIRE(catalogue->volumes().InsertSnapshot({kOld, Taken(volume, "s")}).ok());
  SnapshotGroup group;
  group.id = SnapshotGroupId("a1-g1");
  group.name = "g";
  group.snapshots = {Taken(volume, "of-group")};
  group.snapshots[0].group = group.id;
  REQUIRE(catalogue->volumes().InsertGroup(kOld, group).ok());
  const ClusterHoldings all = {.volumes = 1, .snapshots = 2, .groups = 1, .size_bytes = 30};
  CHECK(catalogue->clusters().ListHoldings()->at(kOld) == all);
  REQUIRE(Reassign() == absl::OkStatus());
  const auto after = catalogue->clusters().ListHoldings();
  CHECK((after->at(kNew) == all && !after->contains(kOld)));
  CHECK(catalogue->volumes().FindVolume(kNew, volume).ok());
  CHECK(absl::IsNotFound(catalogue->volumes().FindVolume(kOld, volume).status()));
  CHECK(catalogue->volumes().FindSnapshot(kNew, SnapshotId("a1-ss")).ok());
  CHECK(catalogue->volumes().FindGroup(kNew, group.id)->snapshots.size() == 1);
  CHECK(catalogue->volumes().FindVolume(ClusterId("third"), of_third).ok());
}

// Each of these would give a node or an orchestrator a volume that is not the one that it knows.
TEST_CASE_METHOD(TwoClusters, "all of it or nothing: what forbids one volume forbids the others") {
  const VolumeId volume = Add(kOld, "v");
  Add(kOld, "w");
  absl::Status refused;
  SECTION("a node has a grant") {
    REQUIRE(catalogue->grants()
                .AddGrant(kOld, {volume, NodeId("n.1"), Access::kExclusive, GrantOwner::kNode}, {"secret"})
                .ok());
    refused = Reassign();
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK_THAT(std::string(refused.message()), Contains(volume.value() + " by node n.1"));
    CHECK(catalogue->clusters().CheckReassignable(kOld, kNew, /*grants_end=*/true).ok());
  }
  SECTION("both have a volume of one name") {
    Add(kNew, "w");
    refused = Reassign();
    CHECK(absl::IsAlreadyExists(refused));
    CHECK_THAT(std::string(refused.message()), Contains("both have w."));
  }
  SECTION("a volume is being copied") {
    Add(kOld, "copy", /*copied=*/volume);
    refused = Reassign();
    CHECK(absl::IsAborted(refused));
  }
  SECTION("something was made since they were counted") {
    const ClusterHoldings before = catalogue->clusters().ListHoldings()->at(kOld);
    Add(kOld, "x");
    refused = catalogue->clusters().ReassignAll(kOld, kNew, before);
    CHECK(absl::IsAborted(refused));
  }
  CHECK_FALSE(refused.ok());
  CHECK(catalogue->volumes().FindVolume(kOld, volume).ok());
  CHECK(catalogue->clusters().ListHoldings()->at(kOld).volumes >= 2);
}

TEST_CASE_METHOD(TwoClusters, "a grant that the old cluster asks for afterwards finds no such volume") {
  const VolumeId volume = Add(kOld, "v");
  REQUIRE(Reassign().ok());
  const GrantRequest request{volume, NodeId("n.1"), Access::kExclusive, GrantOwner::kNode};
  CHECK(absl::IsNotFound(catalogue->grants().AddGrant(kOld, request, {"secret"}).status()));
  CHECK(catalogue->grants().AddGrant(kNew, request, {"secret"}).ok());
}

// A start begins such a copy again, and would find no source for it: the array would not open any more.
TEST_CASE_METHOD(TwoClusters, "no volume of the old cluster begins as a copy of what was given away") {
  const VolumeId volume = Add(kOld, "v");
  REQUIRE(catalogue->volumes().InsertSnapshot({kOld, Taken(volume, "s")}).ok());
  REQUIRE(Reassign().ok());
  VolumeRow late;
  late.copying = true;
  late.volume.id = VolumeId("a1-vlate");
  late.volume.spec.name = "late";
  SECTION("of a snapshot") { late.volume.spec.source_snapshot = SnapshotId("a1-ss"); }
  SECTION("of a volume") { late.volume.spec.source_volume = volume; }
  SECTION("of a snapshot that is gone") {
    late.volume.spec.source_snapshot = SnapshotId("a1-ss");
    REQUIRE(catalogue->volumes().DeleteSnapshot(SnapshotId("a1-ss")).ok());
  }
  late.cluster = kOld;
  CHECK(absl::IsNotFound(catalogue->volumes().InsertVolume(late)));
  CHECK(absl::IsNotFound(catalogue->volumes().FindVolume(kOld, late.volume.id).status()));
  late.cluster = kNew;
  const bool is_there = catalogue->volumes().ListAllSnapshots()->size() == 1;
  CHECK(catalogue->volumes().InsertVolume(late).ok() == is_there);
}

}  // namespace lunkeeper
