// Each RPC with requests that are well formed; bad_input_test.cc has the others.

#include <algorithm>
#include <map>
#include <set>

#include "controller/testing/controller_fixture.h"

namespace lunkeeper {

using grpc::StatusCode;

TEST_CASE("a volume says where it can be reached, and what the node has to know") {
  ControllerFixture fixture;
  auto request = CreateRequest("pvc-1", 310 * kTestMiB + 1);
  (*request.mutable_parameters())["fsType"] = "xfs";
  (*request.mutable_parameters())["provisioning"] = "thick";
  (*request.mutable_parameters())["durability"] = "sync";
  (*request.mutable_parameters())["csi.storage.k8s.io/pvc/name"] = "data-0";
  const std::string id = fixture.MustCreate(request);
  const csi::v1::Volume& volume = fixture.response.volume();
  CHECK(volume.capacity_bytes() == 311 * kTestMiB);
  CHECK(volume.volume_context().at("fsType") == "xfs");
  CHECK(volume.accessible_topology(0).segments().at("array.lunkeeper.io/a1") == "reachable");
  const auto stored = fixture.array.GetVolume(VolumeId(id));
  CHECK(stored->spec.provisioning == Provisioning::kThick);
  CHECK(stored->spec.durability == Durability::kSync);
  CHECK(stored->spec.claim.empty());  // half of a name is none
}

// For people, and for `lunkeeper import`; so it never keeps a volume from being made.
TEST_CASE("a volume remembers the claim that it was made for, and is the same for any other") {
  ControllerFixture fixture;
  auto request = CreateRequest("pvc-1", kTestMiB);
  auto& parameters = *request.mutable_parameters();
  parameters["csi.storage.k8s.io/pvc/name"] = "data-0";
  parameters["csi.storage.k8s.io/pvc/namespace"] = "db";
  const std::string id = fixture.MustCreate(request);
  CHECK(fixture.array.GetVolume(VolumeId(id))->spec.claim == "db/data-0");
  parameters["csi.storage.k8s.io/pvc/name"] = "data-1";
  CHECK(fixture.MustCreate(request) == id);
  for (const std::string& odd : {std::string("a/b"), std::string("a\nb"), std::string(254, 'x')}) {
    parameters["csi.storage.k8s.io/pvc/name"] = odd;
    CHECK(fixture.MustCreate(request) == id);
    request.set_name(absl::StrCat("pvc-", odd.size()));
    CHECK(fixture.array.GetVolume(VolumeId(fixture.MustCreate(request)))->spec.claim.empty());
    request.set_name("pvc-1");
  }
}

// An orchestrator that finds another context takes the volume for another one.
TEST_CASE("a volume has one context in every answer, whatever names its file system") {
  ControllerFixture fixture;
  auto by_class = CreateRequest("by-class");
  (*by_class.mutable_parameters())["fsType"] = "ext4";
  auto by_capability = CreateRequest("by-capability");
  by_capability.mutable_volume_capabilities(0)->mutable_mount()->set_fs_type("xfs");
  auto by_both = by_capability;
  by_both.set_name("by-both");
  (*by_both.mutable_parameters())["fsType"] = "ext4";
  for (const auto& [request, name] : {std::pair(by_class, "ext4"), std::pair(by_capability, "xfs"),
                                      std::pair(by_both, "xfs"), std::pair(CreateRequest("any"), "")}) {
    const std::string id = fixture.MustCreate(request);
    std::map<std::string, std::string> context;
    if (*name != '\0') context["fsType"] = name;
    const auto same = [&](const csi::v1::Volume& volume) {
      return std::map<std::string, std::string>(volume.volume_context().begin(),
                                                volume.volume_context().end()) == context;
    };
    CHECK(same(fixture.response.volume()));
    CHECK(same(fixture.Get(id).volume()));
    csi::v1::ListVolumesRequest list;
    csi::v1::ListVolumesResponse listed;
    REQUIRE(fixture.service->ListVolumes(nullptr, &list, &listed).ok());
    CHECK(std::any_of(listed.entries().begin(), listed.entries().end(),
                      [&](const auto& e) { return e.volume().volume_id() == id && same(e.volume()); }));
  }
}

TEST_CASE("a repeated creation gets the volume there is, also when it has grown since or fits the range") {
  ControllerFixture fixture;
  auto request = CreateRequest("pvc-1");
  const std::string id = fixture.MustCreate(request);
  CHECK(fixture.MustCreate(request) == id);
  int64_t bytes = 0;
  REQUIRE(fixture.Expand(id, 32 * kTestMiB, 0, &bytes).ok());
  CHECK(fixture.MustCreate(request) == id);
  CHECK(fixture.response.volume().capacity_bytes() == 32 * kTestMiB);
  CHECK(fixture.MustCreate(CreateRequest("pvc-1", 20 * kTestMiB)) == id);

  request.mutable_capacity_range()->set_limit_bytes(16 * kTestMiB);
  CHECK(fixture.Create(request).error_code() == StatusCode::ALREADY_EXISTS);
  CHECK(fixture.Create(CreateRequest("pvc-1", 64 * kTestMiB)).error_code() == StatusCode::ALREADY_EXISTS);
  request = CreateRequest("pvc-1");
  (*request.mutable_parameters())["provisioning"] = "thick";
  CHECK(fixture.Create(request).error_code() == StatusCode::ALREADY_EXISTS);
}

TEST_CASE("sizes are whole MiB within the range") {
  ControllerFixture fixture;
  struct Row {
    int64_t required, limit, want;
    StatusCode code;
  };
  const Row rows[] = {
      {1, 0, kTestMiB, StatusCode::OK},
      {kTestMiB, kTestMiB, kTestMiB, StatusCode::OK},
      {0, 5 * kTestMiB + 5, 5 * kTestMiB, StatusCode::OK},
      {0, int64_t{4} << 30, int64_t{1} << 30, StatusCode::OK},
      {kTestMiB + 1, kTestMiB + 2, 0, StatusCode::OUT_OF_RANGE},
      {0, 5, 0, StatusCode::OUT_OF_RANGE},
      {INT64_MAX, 0, 0, StatusCode::OUT_OF_RANGE},
      {2 * kTestMiB, kTestMiB, 0, StatusCode::INVALID_ARGUMENT},
      {0, 0, 0, StatusCode::INVALID_ARGUMENT},
      {-1, 0, 0, StatusCode::INVALID_ARGUMENT},
      {kTestMiB, -1, 0, StatusCode::INVALID_ARGUMENT},
  };
  for (const Row& row : rows) {
    CAPTURE(row.required, row.limit);
    auto request = CreateRequest("v-" + std::to_string(row.required) + "-" + std::to_string(row.limit));
    request.mutable_capacity_range()->set_required_bytes(row.required);
    request.mutable_capacity_range()->set_limit_bytes(row.limit);
    CHECK(fixture.Create(request).error_code() == row.code);
    CHECK(fixture.response.volume().capacity_bytes() == row.want);
  }
  auto request = CreateRequest("no-range");
  request.clear_capacity_range();
  fixture.MustCreate(request);
  CHECK(fixture.response.volume().capacity_bytes() == int64_t{1} << 30);
}

TEST_CASE("a clone is as large as its source or larger, and names it") {
  ControllerFixture fixture;
  const std::string source = fixture.MustCreate(CreateRequest("source", 64 * kTestMiB));
  csi::v1::Snapshot snapshot;
  REQUIRE(fixture.Snapshot("snap", source, &snapshot).ok());
  CHECK(snapshot.size_bytes() == 64 * kTestMiB);
  CHECK(snapshot.ready_to_use());
  CHECK(snapshot.creation_time().seconds() > 0);

  auto clone = CreateRequest("clone", 16 * kTestMiB);
  clone.mutable_volume_content_source()->mutable_volume()->set_volume_id(source);
  fixture.MustCreate(clone);
  CHECK(fixture.response.volume().capacity_bytes() == 64 * kTestMiB);
  CHECK(fixture.response.volume().content_source().volume().volume_id() == source);

  auto restored = CreateRequest("restored", 100 * kTestMiB);
  restored.mutable_volume_content_source()->mutable_snapshot()->set_snapshot_id(snapshot.snapshot_id());
  fixture.MustCreate(restored);
  CHECK(fixture.response.volume().capacity_bytes() == 100 * kTestMiB);
  restored.set_name("limited");
  restored.mutable_capacity_range()->set_required_bytes(kTestMiB);
  restored.mutable_capacity_range()->set_limit_bytes(2 * kTestMiB);
  CHECK(fixture.Create(restored).error_code() == StatusCode::OUT_OF_RANGE);
  restored.mutable_volume_content_source()->mutable_snapshot()->set_snapshot_id("snap-none");
  CHECK(fixture.Create(restored).error_code() == StatusCode::NOT_FOUND);
}

TEST_CASE("a published volume is one node's, and the other is told whose") {
  ControllerFixture fixture;
  const std::string id = fixture.MustCreate(CreateRequest("v"));
  REQUIRE(fixture.Publish(PublishRequest(id, kNodeA)).ok());
  const auto context = fixture.published.publish_context();
  CHECK_FALSE(context.empty());
  REQUIRE(fixture.Publish(PublishRequest(id, kNodeA)).ok());
  CHECK(fixture.published.publish_context().size() == context.size());
  CHECK(fixture.Get(id).status().published_node_ids(0) == kNodeA);

  const grpc::Status refused = fixture.Publish(PublishRequest(id, kNodeB));
  CHECK(refused.error_code() == StatusCode::FAILED_PRECONDITION);
  CHECK_THAT(refused.error_message(), Catch::Contains(kNodeA));
  CHECK(fixture.Delete(id).error_code() == StatusCode::FAILED_PRECONDITION);

  REQUIRE(fixture.Unpublish(id, kNodeA).ok());
  REQUIRE(fixture.Unpublish(id, kNodeA).ok());
  CHECK(fixture.Publish(PublishRequest(id, kNodeB)).ok());
  REQUIRE(fixture.Unpublish(id, "").ok());
  CHECK(fixture.Get(id).status().published_node_ids().empty());
  CHECK(fixture.Delete(id).ok());
  CHECK(fixture.Delete(id).ok());
}

TEST_CASE("publishing again in another way is refused as incompatible") {
  ControllerFixture fixture;
  const std::string id = fixture.MustCreate(CreateRequest("v"));
  auto request = PublishRequest(id, kNodeA);
  REQUIRE(fixture.Publish(request).ok());
  request.set_readonly(true);
  CHECK(fixture.Publish(request).error_code() == StatusCode::ALREADY_EXISTS);
}

TEST_CASE("a fenced node is refused, whether it has the volume or not") {
  ControllerFixture fixture;
  const std::string id = fixture.MustCreate(CreateRequest("v"));
  REQUIRE(fixture.Publish(PublishRequest(id, kNodeA)).ok());
  REQUIRE(fixture.array.FenceNode(*fixture.array.BeginTerm("test"), {NodeId(kNodeA), {}}).ok());
  CHECK(fixture.Publish(PublishRequest(id, kNodeA)).error_code() == StatusCode::FAILED_PRECONDITION);
}

TEST_CASE("each access mode takes the grant it needs") {
  struct Row {
    csi::v1::VolumeCapability capability;
    bool read_only;
    StatusCode code;
    Access access;
  };
  const Row rows[] = {
      {Mount(Mode::SINGLE_NODE_WRITER), false, StatusCode::OK, Access::kExclusive},
      {Mount(Mode::SINGLE_NODE_SINGLE_WRITER), false, StatusCode::OK, Access::kExclusive},
      {Mount(Mode::SINGLE_NODE_MULTI_WRITER), false, StatusCode::OK, Access::kExclusive},
      {Mount(Mode::SINGLE_NODE_WRITER), true, StatusCode::OK, Access::kReadOnly},
      {Mount(Mode::SINGLE_NODE_READER_ONLY), false, StatusCode::OK, Access::kReadOnly},
      {Mount(Mode::MULTI_NODE_READER_ONLY), false, StatusCode::OK, Access::kReadOnly},
      {Block(Mode::MULTI_NODE_SINGLE_WRITER), false, StatusCode::OK, Access::kSharedWrite},
      {Block(Mode::MULTI_NODE_MULTI_WRITER), false, StatusCode::OK, Access::kSharedWrite},
      {Block(Mode::MULTI_NODE_MULTI_WRITER), true, StatusCode::OK, Access::kReadOnly},
      {Mount(Mode::MULTI_NODE_SINGLE_WRITER), false, StatusCode::INVALID_ARGUMENT, {}},
      {Mount(Mode::MULTI_NODE_MULTI_WRITER), false, StatusCode::INVALID_ARGUMENT, {}},
  };
  int number = 0;
  for (const Row& row : rows) {
    ControllerFixture fixture;
    CAPTURE(++number);
    const bool possible = row.code == StatusCode::OK;
    const std::string id =
        fixture.MustCreate(possible ? CreateFor("v", {row.capability}) : CreateRequest("v"));
    auto request = PublishRequest(id, kNodeA);
    *request.mutable_volume_capability() = row.capability;
    request.set_readonly(row.read_only);
    CHECK(fixture.Publish(request).error_code() == row.code);
    if (row.code == StatusCode::OK) CHECK(fixture.array.ListGrants({})->front().access == row.access);
  }
}

TEST_CASE("a node is given no more volumes than its limit") {
  ControllerFixture fixture;
  fixture.service = MakeControllerService(*fixture.arrays, {.max_volumes_per_node = 2});
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(fixture.MustCreate(CreateRequest(std::to_string(i))));
  REQUIRE(fixture.Publish(PublishRequest(ids[0], kNodeA)).ok());
  REQUIRE(fixture.Publish(PublishRequest(ids[1], kNodeA)).ok());
  CHECK(fixture.Publish(PublishRequest(ids[1], kNodeA)).ok());
  CHECK(fixture.Publish(PublishRequest(ids[2], kNodeA)).error_code() == StatusCode::RESOURCE_EXHAUSTED);
  CHECK(fixture.Publish(PublishRequest(ids[2], kNodeB)).ok());
}

TEST_CASE("an unpublish leaves alone what the node took for itself") {
  ControllerFixture fixture;
  const std::string id = fixture.MustCreate(CreateRequest("v"));
  REQUIRE(fixture.array.AcquireGrant({VolumeId(id), NodeId(kNodeA)}, absl::ZeroDuration()).ok());
  REQUIRE(fixture.Unpublish(id, kNodeA).ok());
  CHECK(fixture.Get(id).status().published_node_ids_size() == 1);
}

TEST_CASE("a volume grows, never shrinks, and the node is told to grow too") {
  ControllerFixture fixture;
  const std::string id = fixture.MustCreate(CreateRequest("v"));
  int64_t bytes = 0;
  REQUIRE(fixture.Expand(id, 32 * kTestMiB, 0, &bytes).ok());
  CHECK(bytes == 32 * kTestMiB);
  REQUIRE(fixture.Expand(id, 8 * kTestMiB, 0, &bytes).ok());
  CHECK(bytes == 32 * kTestMiB);
  CHECK(fixture.Expand(id, 8 * kTestMiB, 9 * kTestMiB, &bytes).error_code() == StatusCode::OUT_OF_RANGE);
  CHECK(fixture.Expand(id, int64_t{1} << 60, 0, &bytes).error_code() == StatusCode::OUT_OF_RANGE);
  CHECK(fixture.Expand("vol-none", 32 * kTestMiB, 0, &bytes).error_code() == StatusCode::NOT_FOUND);
}

TEST_CASE("volumes are listed in pages, with the nodes that have them") {
  ControllerFixture fixture;
  std::set<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.insert(fixture.MustCreate(CreateRequest(std::to_string(i))));
  REQUIRE(fixture.Publish(PublishRequest(*ids.begin(), kNodeA)).ok());
  std::set<std::string> seen;
  csi::v1::ListVolumesRequest request;
  request.set_max_entries(2);
  do {
    csi::v1::ListVolumesResponse response;
    REQUIRE(fixture.service->ListVolumes(nullptr, &request, &response).ok());
    for (const auto& entry : response.entries()) {
      seen.insert(entry.volume().volume_id());
      CHECK(entry.status().published_node_ids_size() == (entry.volume().volume_id() == *ids.begin() ? 1 : 0));
    }
    request.set_starting_token(response.next_token());
  } while (!request.starting_token().empty());
  CHECK(seen == ids);
}

TEST_CASE("snapshots are found by id and by source, and an unknown one is an empty list") {
  ControllerFixture fixture;
  const std::string id = fixture.MustCreate(CreateRequest("v"));
  csi::v1::Snapshot one, two;
  REQUIRE(fixture.Snapshot("one", id, &one).ok());
  REQUIRE(fixture.Snapshot("two", fixture.MustCreate(CreateRequest("w")), &two).ok());
  CHECK(fixture.Snapshot("one", two.source_volume_id()).error_code() == StatusCode::ALREADY_EXISTS);
  CHECK(fixture.Snapshot("three", "vol-none").error_code() == StatusCode::NOT_FOUND);

  const auto count = [&](const std::string& snapshot, const std::string& source) {
    csi::v1::ListSnapshotsRequest request;
    request.set_snapshot_id(snapshot);
    request.set_source_volume_id(source);
    csi::v1::ListSnapshotsResponse response;
    REQUIRE(fixture.service->ListSnapshots(nullptr, &request, &response).ok());
    return response.entries_size();
  };
  CHECK(count("", "") == 2);
  CHECK(count(one.snapshot_id(), "") == 1);
  CHECK(count(one.snapshot_id(), two.source_volume_id()) == 0);
  CHECK(count("", id) == 1);
  CHECK(count("none", "") == 0);
  CHECK(count("", "none") == 0);

  csi::v1::DeleteSnapshotRequest drop;
  drop.set_snapshot_id(one.snapshot_id());
  csi::v1::DeleteSnapshotResponse dropped;
  CHECK(fixture.service->DeleteSnapshot(nullptr, &drop, &dropped).ok());
  CHECK(fixture.service->DeleteSnapshot(nullptr, &drop, &dropped).ok());
  CHECK(count("", "") == 1);
  csi::v1::GetSnapshotRequest get;
  get.set_snapshot_id(one.snapshot_id());
  csi::v1::GetSnapshotResponse got;
  CHECK(fixture.service->GetSnapshot(nullptr, &get, &got).error_code() == StatusCode::NOT_FOUND);
}

TEST_CASE("what cannot be had is not confirmed, and says why") {
  ControllerFixture fixture;
  csi::v1::ValidateVolumeCapabilitiesRequest request;
  request.set_volume_id(fixture.MustCreate(CreateRequest("v")));
  *request.add_volume_capabilities() = Mount();
  csi::v1::ValidateVolumeCapabilitiesResponse response;
  REQUIRE(fixture.service->ValidateVolumeCapabilities(nullptr, &request, &response).ok());
  CHECK(response.confirmed().volume_capabilities_size() == 1);

  *request.add_volume_capabilities() = Mount(Mode::MULTI_NODE_MULTI_WRITER);
  response.Clear();
  REQUIRE(fixture.service->ValidateVolumeCapabilities(nullptr, &request, &response).ok());
  CHECK_FALSE(response.has_confirmed());
  CHECK_FALSE(response.message().empty());

  request.mutable_volume_capabilities()->RemoveLast();
  (*request.mutable_parameters())["durability"] = "sync";
  response.Clear();
  REQUIRE(fixture.service->ValidateVolumeCapabilities(nullptr, &request, &response).ok());
  CHECK_FALSE(response.has_confirmed());
}

TEST_CASE("a volume is made only where the array is reached") {
  ControllerFixture fixture;
  auto request = CreateRequest("v");
  auto* requirement = request.mutable_accessibility_requirements();
  (*requirement->add_requisite()->mutable_segments())["array.lunkeeper.io/other"] = "reachable";
  CHECK(fixture.Create(request).error_code() == StatusCode::RESOURCE_EXHAUSTED);
  (*requirement->add_requisite()->mutable_segments())["array.lunkeeper.io/a1"] = "reachable";
  CHECK(fixture.Create(request).ok());

  csi::v1::GetCapacityRequest capacity;
  csi::v1::GetCapacityResponse response;
  REQUIRE(fixture.service->GetCapacity(nullptr, &capacity, &response).ok());
  CHECK(response.available_capacity() > 0);
  CHECK(response.minimum_volume_size().value() == kTestMiB);
  (*capacity.mutable_accessible_topology()->mutable_segments())["array.lunkeeper.io/other"] = "reachable";
  response.Clear();
  REQUIRE(fixture.service->GetCapacity(nullptr, &capacity, &response).ok());
  CHECK(response.available_capacity() == 0);
}

TEST_CASE("what is offered can be made one volume, of exactly that size") {
  FakeArray odd({.name = "a1", .pool_bytes = 100 * kTestMiB + 4096});
  const auto arrays = ControllerFixture::Only(&odd);
  const auto service = MakeControllerService(*arrays, {});
  csi::v1::GetCapacityRequest capacity;
  csi::v1::GetCapacityResponse offered;
  REQUIRE(service->GetCapacity(nullptr, &capacity, &offered).ok());
  CHECK(offered.available_capacity() == 100 * kTestMiB);
  CHECK(offered.maximum_volume_size().value() == 100 * kTestMiB);  // by which Kubernetes places pods
  auto request = CreateRequest("all", offered.available_capacity());
  request.mutable_capacity_range()->set_limit_bytes(offered.available_capacity());
  (*request.mutable_parameters())["provisioning"] = "thick";
  csi::v1::CreateVolumeResponse made;
  CHECK(service->CreateVolume(nullptr, &request, &made).ok());
}

TEST_CASE("an array that is away is told apart from one that refuses") {
  ControllerFixture fixture;
  const std::string id = fixture.MustCreate(CreateRequest("v"));
  fixture.array.FailWith(absl::UnavailableError("the array does not answer"));
  CHECK(fixture.Create(CreateRequest("w")).error_code() == StatusCode::UNAVAILABLE);
  CHECK(fixture.Publish(PublishRequest(id, kNodeA)).error_code() == StatusCode::UNAVAILABLE);
  CHECK(fixture.Delete(id).error_code() == StatusCode::UNAVAILABLE);
}

TEST_CASE("every capability announced has its call, and no other") {
  ControllerFixture fixture;
  csi::v1::ControllerGetCapabilitiesResponse response;
  REQUIRE(fixture.service->ControllerGetCapabilities(nullptr, nullptr, &response).ok());
  CHECK(response.capabilities_size() == 16);
}

}  // namespace lunkeeper
