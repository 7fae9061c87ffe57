// The GroupController service over arrays in memory.
#include "controller/group_service.h"

#include <set>

#include "controller/testing/controller_fixture.h"

namespace lunkeeper {

using grpc::StatusCode;

namespace {

struct GroupFixture : ControllerFixture {
  std::unique_ptr<csi::v1::GroupController::Service> groups = MakeGroupControllerService(*arrays);
  csi::v1::VolumeGroupSnapshot group;

  StatusCode CreateGroup(const std::string& name, const std::vector<std::string>& volumes) {
    csi::v1::CreateVolumeGroupSnapshotRequest request;
    request.set_name(name);
    for (const std::string& volume : volumes) request.add_source_volume_ids(volume);
    csi::v1::CreateVolumeGroupSnapshotResponse made;
    const grpc::Status status = groups->CreateVolumeGroupSnapshot(nullptr, &request, &made);
    group = made.group_snapshot();
    return status.error_code();
  }
  template <class Request>
  static Request About(const std::string& group, const std::vector<std::string>& snapshots) {
    Request request;
    request.set_group_snapshot_id(group);
    for (const std::string& snapshot : snapshots) request.add_snapshot_ids(snapshot);
    return request;
  }
  StatusCode DeleteGroup(const std::string& id, const std::vector<std::string>& snapshots) {
    const auto request = About<csi::v1::DeleteVolumeGroupSnapshotRequest>(id, snapshots);
    csi::v1::DeleteVolumeGroupSnapshotResponse deleted;
    return groups->DeleteVolumeGroupSnapshot(nullptr, &request, &deleted).error_code();
  }
  StatusCode GetGroup(const std::string& id, const std::vector<std::string>& snapshots) {
    const auto request = About<csi::v1::GetVolumeGroupSnapshotRequest>(id, snapshots);
    csi::v1::GetVolumeGroupSnapshotResponse got;
    const grpc::Status status = groups->GetVolumeGroupSnapshot(nullptr, &request, &got);
    group = got.group_snapshot();
    return status.error_code();
  }
  std::vector<std::string> Members() const {
    std::vector<std::string> ids;
    for (const auto& snapshot : group.snapshots()) ids.push_back(snapshot.snapshot_id());
    return ids;
  }
};

}  // namespace

TEST_CASE_METHOD(GroupFixture,
                 "a group has all that the specification asks for, also when it is asked again") {
  const std::string a = MustCreate(CreateRequest("a")), b = MustCreate(CreateRequest("b"));
  REQUIRE(CreateGroup("g", {a, b}) == StatusCode::OK);
  const std::string id = group.group_snapshot_id();
  const auto members = Members();
  CHECK(members.size() == 2);
  CHECK(group.ready_to_use());
  CHECK(group.creation_time().seconds() > 0);
  std::set<std::string> sources;
  for (const auto& snapshot : group.snapshots()) {
    CHECK(snapshot.group_snapshot_id() == id);
    CHECK(snapshot.ready_to_use());
    CHECK(snapshot.size_bytes() == 16 * kTestMiB);
    sources.insert(snapshot.source_volume_id());
  }
  CHECK(sources == std::set<std::string>{a, b});
  CHECK(CreateGroup("g", {b, a}) == StatusCode::OK);
  CHECK(group.group_snapshot_id() == id);
  CHECK(CreateGroup("g", {a}) == StatusCode::ALREADY_EXISTS);
  CHECK(GetGroup(id, members) == StatusCode::OK);
  CHECK(Members() == members);

  csi::v1::ListSnapshotsRequest list;
  csi::v1::ListSnapshotsResponse listed;
  REQUIRE(service->ListSnapshots(nullptr, &list, &listed).ok());
  REQUIRE(listed.entries_size() == 2);
  CHECK(listed.entries(0).snapshot().group_snapshot_id() == id);
}

TEST_CASE_METHOD(GroupFixture, "a member is deleted with its group, and a list that differs is refused") {
  const std::string a = MustCreate(CreateRequest("a")), b = MustCreate(CreateRequest("b"));
  REQUIRE(CreateGroup("g", {a, b}) == StatusCode::OK);
  const std::string id = group.group_snapshot_id();
  const auto members = Members();
  csi::v1::DeleteSnapshotRequest request;
  request.set_snapshot_id(members.front());
  csi::v1::DeleteSnapshotResponse deleted;
  CHECK(service->DeleteSnapshot(nullptr, &request, &deleted).error_code() == StatusCode::INVALID_ARGUMENT);
  for (const auto& wrong : {std::vector<std::string>{}, {members.front()}, {members.front(), "another"}}) {
    CHECK(DeleteGroup(id, wrong) == StatusCode::INVALID_ARGUMENT);
    CHECK(GetGroup(id, wrong) == StatusCode::INVALID_ARGUMENT);
  }
  CHECK(DeleteGroup(id, members) == StatusCode::OK);
  CHECK(DeleteGroup(id, members) == StatusCode::OK);
  CHECK(GetGroup(id, members) == StatusCode::NOT_FOUND);
}

TEST_CASE_METHOD(GroupFixture, "what names no group, or cannot be one, has the specification's codes") {
  const std::string a = MustCreate(CreateRequest("a"));
  CHECK(CreateGroup("", {a}) == StatusCode::INVALID_ARGUMENT);
  CHECK(CreateGroup("g", {}) == StatusCode::INVALID_ARGUMENT);
  CHECK(CreateGroup("g", {a, a}) == StatusCode::INVALID_ARGUMENT);
  CHECK(CreateGroup("g", {a, ""}) == StatusCode::INVALID_ARGUMENT);
  CHECK(CreateGroup("g", {a, "nothing"}) == StatusCode::NOT_FOUND);
  CHECK(GetGroup("", {}) == StatusCode::INVALID_ARGUMENT);
  CHECK(GetGroup("nothing", {}) == StatusCode::NOT_FOUND);
  CHECK(DeleteGroup("", {}) == StatusCode::INVALID_ARGUMENT);
  CHECK(DeleteGroup("nothing", {}) == StatusCode::OK);
}

}  // namespace lunkeeper
