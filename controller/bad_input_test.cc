// Every field of every request, absent, empty, too long, negative or nonsense: the code the specification
// names, a message that names the field, and nothing changed.

#include <functional>

#include "controller/testing/controller_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;
namespace v1 = csi::v1;

const std::string kTooLong(129, 'a');
const std::string kControl("a\nb");

template <class Request>
struct Bad {
  const char* what;
  std::function<void(Request&)> spoil;
  StatusCode code = StatusCode::INVALID_ARGUMENT;
};

// Each row spoils a good request; the call must answer with the row's code, name what is wrong, and change
// nothing.
template <class Request, class Response>
void CheckTable(ControllerFixture& fixture, const Request& good, const std::vector<Bad<Request>>& table,
                grpc::Status (v1::Controller::Service::*method)(grpc::ServerContext*, const Request*,
                                                                Response*)) {
  const size_t volumes = fixture.array.ListVolumes("", 0)->items.size();
  const size_t snapshots = fixture.array.ListSnapshots({}, "", 0)->items.size();
  for (const Bad<Request>& row : table) {
    CAPTURE(row.what);
    Request request = good;
    row.spoil(request);
    Response response;
    const grpc::Status status = (fixture.service.get()->*method)(nullptr, &request, &response);
    CAPTURE(status.error_message());
    CHECK(status.error_code() == row.code);
    CHECK(status.error_message().size() > 10);
    CHECK(status.error_message().size() < 1000);
  }
  CHECK(fixture.array.ListVolumes("", 0)->items.size() == volumes);
  CHECK(fixture.array.ListSnapshots({}, "", 0)->items.size() == snapshots);
  CHECK(fixture.array.ListGrants({})->empty());
  Response response;
  CHECK((fixture.service.get()->*method)(nullptr, &good, &response).ok());
}

// The ways a required id can be wrong.
template <class Request>
std::vector<Bad<Request>> BadIds(const std::function<std::string*(Request&)>& id) {
  return {
      {"id absent", [id](Request& r) { id(r)->clear(); }},
      {"id too long", [id](Request& r) { *id(r) = kTooLong + kTooLong; }},
      {"id with a path", [id](Request& r) { *id(r) = "../../etc/passwd"; }},
      {"id with control characters", [id](Request& r) { *id(r) = kControl; }},
      {"id with a NUL", [id](Request& r) { *id(r) = std::string("a\0b", 3); }},
  };
}

template <class Request>
std::vector<Bad<Request>> BadCapabilities(const std::function<v1::VolumeCapability*(Request&)>& capability) {
  return {
      {"no access type", [capability](Request& r) { capability(r)->clear_access_type(); }},
      {"no access mode", [capability](Request& r) { capability(r)->clear_access_mode(); }},
      {"unknown access mode",
       [capability](Request& r) {
         capability(r)->mutable_access_mode()->set_mode(static_cast<Mode::Mode>(99));
       }},
      {"mode 0", [capability](Request& r) { capability(r)->mutable_access_mode()->set_mode(Mode::UNKNOWN); }},
      {"unknown file system",
       [capability](Request& r) { capability(r)->mutable_mount()->set_fs_type("ntfs"); }},
      {"long file system",
       [capability](Request& r) { capability(r)->mutable_mount()->set_fs_type(kTooLong); }},
      {"long mount flags",
       [capability](Request& r) { capability(r)->mutable_mount()->add_mount_flags(std::string(5000, 'a')); }},
      {"mount flags with a newline",
       [capability](Request& r) { capability(r)->mutable_mount()->add_mount_flags("noatime\nro"); }},
      {"a mount group",
       [capability](Request& r) { capability(r)->mutable_mount()->set_volume_mount_group("100"); }},
      {"a file system for several writers",
       [capability](Request& r) { *capability(r) = Mount(Mode::MULTI_NODE_MULTI_WRITER); }},
  };
}

template <class Request>
void Append(std::vector<Bad<Request>>& table, const std::vector<Bad<Request>>& more) {
  table.insert(table.end(), more.begin(), more.end());
}

template <class Request>
std::vector<Bad<Request>> BadRanges() {
  const auto range = [](int64_t required, int64_t limit) {
    return [required, limit](Request& r) {
      r.mutable_capacity_range()->set_required_bytes(required);
      r.mutable_capacity_range()->set_limit_bytes(limit);
    };
  };
  return {{"negative size", range(-1, 0)},
          {"negative limit", range(1, -1)},
          {"limit below size", range(2 * kTestMiB, kTestMiB)},
          {"an empty range", range(0, 0)},
          {"more than there can be", range(INT64_MAX, 0), StatusCode::OUT_OF_RANGE},
          {"no such size", range(1, 2), StatusCode::OUT_OF_RANGE}};
}

}  // namespace

TEST_CASE("CreateVolume refuses bad input") {
  ControllerFixture fixture;
  using Request = v1::CreateVolumeRequest;
  const auto parameter = [](const char* key, const std::string& value) {
    return [key, value](Request& r) { (*r.mutable_parameters())[key] = value; };
  };
  std::vector<Bad<Request>> table = {
      {"no name", [](Request& r) { r.clear_name(); }},
      {"long name", [](Request& r) { r.set_name(kTooLong); }},
      {"name with control characters", [](Request& r) { r.set_name(kControl); }},
      {"name with U+0085",
       [](Request& r) {
         r.set_name(
             "a\xC2\x85"
             "b");
       }},
      {"name with U+FEFF",
       [](Request& r) {
         r.set_name(
             "\xEF\xBB\xBF"
             "a");
       }},
      {"no capabilities", [](Request& r) { r.clear_volume_capabilities(); }},
      {"unknown parameter", parameter("fstype", "xfs")},
      {"long parameters", parameter("fsType", std::string(5000, 'a'))},
      {"unknown provisioning", parameter("provisioning", "fat")},
      {"unknown durability", parameter("durability", "")},
      {"unknown digests", parameter("digests", "data")},
      {"unknown file system parameter", parameter("fsType", "btrfs")},
      {"a mutable parameter", [](Request& r) { (*r.mutable_mutable_parameters())["iops"] = "1"; }},
      {"an empty source", [](Request& r) { r.mutable_volume_content_source(); }},
      {"a source without id", [](Request& r) { r.mutable_volume_content_source()->mutable_volume(); }},
      {"a snapshot without id", [](Request& r) { r.mutable_volume_content_source()->mutable_snapshot(); }},
      {"a long source id",
       [](Request& r) { r.mutable_volume_content_source()->mutable_volume()->set_volume_id(kTooLong); }},
      {"no such source",
       [](Request& r) { r.mutable_volume_content_source()->mutable_volume()->set_volume_id("none"); },
       StatusCode::NOT_FOUND},
      {"nowhere", [](Request& r) { r.mutable_accessibility_requirements()->add_requisite(); },
       StatusCode::RESOURCE_EXHAUSTED},
      {"a very long place",
       [](Request& r) {
         auto* place = r.mutable_accessibility_requirements()->add_requisite();
         (*place->mutable_segments())["array.lunkeeper.io/a1"] = std::string(5000, 'a');
       }},
  };
  Append(table, BadRanges<Request>());
  Append(table, BadCapabilities<Request>([](Request& r) { return r.mutable_volume_capabilities(0); }));
  CheckTable(fixture, CreateRequest("good"), table, &v1::Controller::Service::CreateVolume);
}

TEST_CASE("an unknown parameter is named, and so are the known ones") {
  ControllerFixture fixture;
  auto request = CreateRequest("v");
  (*request.mutable_parameters())["replicas"] = "3";
  const grpc::Status status = fixture.Create(request);
  CHECK_THAT(status.error_message(), Catch::Contains("replicas") && Catch::Contains("provisioning") &&
                                         Catch::Contains("durability") && Catch::Contains("digests") &&
                                         Catch::Contains("fsType"));
}

TEST_CASE("names may hold any text without control characters") {
  ControllerFixture fixture;
  for (const std::string& name :
       {std::string("../../etc"), std::string("pvc ü 漢字"), std::string(128, 'x')}) {
    CHECK(fixture.Create(CreateRequest(name)).ok());
  }
}

TEST_CASE("ControllerPublishVolume refuses bad input") {
  ControllerFixture fixture;
  using Request = v1::ControllerPublishVolumeRequest;
  std::vector<Bad<Request>> table = BadIds<Request>([](Request& r) { return r.mutable_volume_id(); });
  Append(table, BadIds<Request>([](Request& r) { return r.mutable_node_id(); }));
  Append(table, BadCapabilities<Request>([](Request& r) { return r.mutable_volume_capability(); }));
  Append(
      table,
      std::vector<Bad<Request>>{
          {"no capability", [](Request& r) { r.clear_volume_capability(); }},
          {"a long context", [](Request& r) { (*r.mutable_volume_context())["a"] = std::string(5000, 'a'); }},
          {"no such volume", [](Request& r) { r.set_volume_id("vol-none"); }, StatusCode::NOT_FOUND},
          {"no such node", [](Request& r) { r.set_node_id("fake-node-id"); }, StatusCode::NOT_FOUND},
          {"a node without name", [](Request& r) { r.set_node_id(".00000000000000aa"); },
           StatusCode::NOT_FOUND},
          {"a node with a short instance", [](Request& r) { r.set_node_id("a.12"); }, StatusCode::NOT_FOUND},
      });
  CheckTable(fixture, PublishRequest(fixture.MustCreate(CreateRequest("v")), kNodeA), table,
             &v1::Controller::Service::ControllerPublishVolume);
}

TEST_CASE("ControllerUnpublishVolume refuses bad input") {
  ControllerFixture fixture;
  using Request = v1::ControllerUnpublishVolumeRequest;
  std::vector<Bad<Request>> table = BadIds<Request>([](Request& r) { return r.mutable_volume_id(); });
  table.push_back({"a long node", [](Request& r) { r.set_node_id(kTooLong + kTooLong); }});
  table.push_back({"a node with a path", [](Request& r) { r.set_node_id("../a"); }});
  Request good;
  good.set_volume_id("vol-none");
  good.set_node_id("fake-node-id");
  CheckTable(fixture, good, table, &v1::Controller::Service::ControllerUnpublishVolume);
}

TEST_CASE("DeleteVolume and DeleteSnapshot refuse bad input, and unknown ids are gone already") {
  ControllerFixture fixture;
  v1::DeleteVolumeRequest volume;
  volume.set_volume_id("vol-none");
  CheckTable(fixture, volume, BadIds<v1::DeleteVolumeRequest>([](v1::DeleteVolumeRequest& r) {
               return r.mutable_volume_id();
             }),
             &v1::Controller::Service::DeleteVolume);
  v1::DeleteSnapshotRequest snapshot;
  snapshot.set_snapshot_id("snap-none");
  CheckTable(fixture, snapshot, BadIds<v1::DeleteSnapshotRequest>([](v1::DeleteSnapshotRequest& r) {
               return r.mutable_snapshot_id();
             }),
             &v1::Controller::Service::DeleteSnapshot);
}

TEST_CASE("ValidateVolumeCapabilities refuses bad input") {
  ControllerFixture fixture;
  using Request = v1::ValidateVolumeCapabilitiesRequest;
  std::vector<Bad<Request>> table = BadIds<Request>([](Request& r) { return r.mutable_volume_id(); });
  Append(
      table,
      std::vector<Bad<Request>>{
          {"no capabilities", [](Request& r) { r.clear_volume_capabilities(); }},
          {"no access type", [](Request& r) { r.mutable_volume_capabilities(0)->clear_access_type(); }},
          {"no access mode", [](Request& r) { r.mutable_volume_capabilities(0)->clear_access_mode(); }},
          {"unknown parameter", [](Request& r) { (*r.mutable_parameters())["x"] = "y"; }},
          {"a mutable parameter", [](Request& r) { (*r.mutable_mutable_parameters())["x"] = "y"; }},
          {"a long context", [](Request& r) { (*r.mutable_volume_context())["a"] = std::string(5000, 'a'); }},
          {"no such volume", [](Request& r) { r.set_volume_id("vol-none"); }, StatusCode::NOT_FOUND},
      });
  Request good;
  good.set_volume_id(fixture.MustCreate(CreateRequest("v")));
  *good.add_volume_capabilities() = Mount();
  CheckTable(fixture, good, table, &v1::Controller::Service::ValidateVolumeCapabilities);
}

TEST_CASE("the lists refuse bad input") {
  ControllerFixture fixture;
  using Volumes = v1::ListVolumesRequest;
  CheckTable(
      fixture, Volumes(),
      {{"negative entries", [](Volumes& r) { r.set_max_entries(-1); }},
       {"a foreign token", [](Volumes& r) { r.set_starting_token("invalid-token"); }, StatusCode::ABORTED}},
      &v1::Controller::Service::ListVolumes);
  using Snapshots = v1::ListSnapshotsRequest;
  CheckTable(
      fixture, Snapshots(),
      {{"negative entries", [](Snapshots& r) { r.set_max_entries(-1); }},
       {"a long snapshot id", [](Snapshots& r) { r.set_snapshot_id(kTooLong); }},
       {"a long source id", [](Snapshots& r) { r.set_source_volume_id(kTooLong); }},
       {"a foreign token", [](Snapshots& r) { r.set_starting_token("invalid-token"); }, StatusCode::ABORTED}},
      &v1::Controller::Service::ListSnapshots);
}

TEST_CASE("GetCapacity refuses bad input") {
  ControllerFixture fixture;
  using Request = v1::GetCapacityRequest;
  CheckTable(fixture, Request(),
             {{"a capability without type", [](Request& r) { r.add_volume_capabilities(); }},
              {"unknown parameter", [](Request& r) { (*r.mutable_parameters())["x"] = "y"; }}},
             &v1::Controller::Service::GetCapacity);
}

TEST_CASE("ControllerExpandVolume refuses bad input") {
  ControllerFixture fixture;
  using Request = v1::ControllerExpandVolumeRequest;
  std::vector<Bad<Request>> table = BadIds<Request>([](Request& r) { return r.mutable_volume_id(); });
  Append(table, BadCapabilities<Request>([](Request& r) { return r.mutable_volume_capability(); }));
  Append(table, BadRanges<Request>());
  table.push_back({"no range", [](Request& r) { r.clear_capacity_range(); }});
  table.push_back({"no such volume", [](Request& r) { r.set_volume_id("vol-none"); }, StatusCode::NOT_FOUND});
  Request good;
  good.set_volume_id(fixture.MustCreate(CreateRequest("v")));
  good.mutable_capacity_range()->set_required_bytes(32 * kTestMiB);
  *good.mutable_volume_capability() = Mount();
  CheckTable(fixture, good, table, &v1::Controller::Service::ControllerExpandVolume);
}

TEST_CASE("ControllerModifyVolume refuses bad input") {
  ControllerFixture fixture;
  using Request = v1::ControllerModifyVolumeRequest;
  std::vector<Bad<Request>> table = BadIds<Request>([](Request& r) { return r.mutable_volume_id(); });
  const auto set = [](const std::string& key, const std::string& value) {
    return [key, value](Request& r) { (*r.mutable_mutable_parameters())[key] = value; };
  };
  Append(table, std::vector<Bad<Request>>{{"no parameters", [](Request& r) { r.clear_mutable_parameters(); }},
                                          {"an unknown key", set("iops", "200")},
                                          {"a long key", set(kTooLong, "200")},
                                          {"a long map", set("maxIops", std::string(5000, '1'))},
                                          {"control characters", set("maxIops", kControl)},
                                          {"no such volume", [](Request& r) { r.set_volume_id("vol-none"); },
                                           StatusCode::NOT_FOUND}});
  Request good;
  good.set_volume_id(fixture.MustCreate(CreateRequest("v")));
  (*good.mutable_mutable_parameters())["maxIops"] = "200";
  CheckTable(fixture, good, table, &v1::Controller::Service::ControllerModifyVolume);
}

TEST_CASE("CreateSnapshot refuses bad input") {
  ControllerFixture fixture;
  using Request = v1::CreateSnapshotRequest;
  std::vector<Bad<Request>> table = BadIds<Request>([](Request& r) { return r.mutable_source_volume_id(); });
  Append(table, std::vector<Bad<Request>>{
                    {"no name", [](Request& r) { r.clear_name(); }},
                    {"long name", [](Request& r) { r.set_name(kTooLong); }},
                    {"name with control characters", [](Request& r) { r.set_name(kControl); }},
                    {"a parameter", [](Request& r) { (*r.mutable_parameters())["x"] = "y"; }},
                    {"nowhere", [](Request& r) { r.mutable_accessibility_requirements()->add_requisite(); },
                     StatusCode::RESOURCE_EXHAUSTED},
                    {"no such volume", [](Request& r) { r.set_source_volume_id("vol-none"); },
                     StatusCode::NOT_FOUND},
                });
  Request good;
  good.set_name("s");
  good.set_source_volume_id(fixture.MustCreate(CreateRequest("v")));
  CheckTable(fixture, good, table, &v1::Controller::Service::CreateSnapshot);
}

TEST_CASE("GetSnapshot and ControllerGetVolume refuse bad input") {
  ControllerFixture fixture;
  const std::string id = fixture.MustCreate(CreateRequest("v"));
  csi::v1::Snapshot snapshot;
  REQUIRE(fixture.Snapshot("s", id, &snapshot).ok());
  v1::GetSnapshotRequest of_snapshot;
  of_snapshot.set_snapshot_id(snapshot.snapshot_id());
  auto snapshots =
      BadIds<v1::GetSnapshotRequest>([](v1::GetSnapshotRequest& r) { return r.mutable_snapshot_id(); });
  snapshots.push_back(
      {"none", [](v1::GetSnapshotRequest& r) { r.set_snapshot_id("none"); }, StatusCode::NOT_FOUND});
  CheckTable(fixture, of_snapshot, snapshots, &v1::Controller::Service::GetSnapshot);
  v1::ControllerGetVolumeRequest of_volume;
  of_volume.set_volume_id(id);
  auto volumes = BadIds<v1::ControllerGetVolumeRequest>(
      [](v1::ControllerGetVolumeRequest& r) { return r.mutable_volume_id(); });
  volumes.push_back(
      {"none", [](v1::ControllerGetVolumeRequest& r) { r.set_volume_id("none"); }, StatusCode::NOT_FOUND});
  CheckTable(fixture, of_volume, volumes, &v1::Controller::Service::ControllerGetVolume);
}

}  // namespace lunkeeper
