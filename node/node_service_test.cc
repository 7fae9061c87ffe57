// Bad input: the code that CSI's tables name, a message that says what to do, and nothing changed.
#include "node/node_service.h"

#include <fstream>
#include <functional>
#include <vector>

#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

const std::vector<std::pair<std::string, StatusCode>> kBadIds = {
    {"", StatusCode::INVALID_ARGUMENT},       {std::string(129, 'v'), StatusCode::INVALID_ARGUMENT},
    {"../etc", StatusCode::INVALID_ARGUMENT}, {"a b", StatusCode::INVALID_ARGUMENT},
    {"a\nb", StatusCode::INVALID_ARGUMENT},
};

const std::vector<std::string> kBadPaths = {"",
                                            "/",
                                            "//",
                                            "relative/path",
                                            "/tmp/../etc",
                                            "/tmp/./x",
                                            "/tmp/..",
                                            "/tmp/a\nb",
                                            "/" + std::string(4096, 'p'),
                                            "/tmp/" + std::string(256, 'p'),
                                            std::string("/tmp/a\0b", 8)};

TEST_CASE("a bad volume id is refused by every call") {
  NodeFixture f;
  for (const auto& [id, code] : kBadIds) {
    INFO(id);
    auto stage = f.StageRequest();
    stage.set_volume_id(id);
    CHECK(f.Stage(stage) == code);
    auto publish = f.PublishRequest();
    publish.set_volume_id(id);
    CHECK(f.Publish(publish) == code);
    CHECK(f.Unpublish(id, f.target) == code);
    CHECK(f.Unstage(id, f.staging) == code);
    CHECK(f.Stats(id, f.target) == code);
    auto expand = f.ExpandRequest();
    expand.set_volume_id(id);
    CHECK(f.Expand(expand) == code);
    CHECK(f.message.find("volume_id") == 0);
  }
  CHECK(f.IsClean());
}

TEST_CASE("a bad path is refused by every call that changes something") {
  NodeFixture f;
  for (const std::string& path : kBadPaths) {
    INFO(path);
    auto stage = f.StageRequest();
    stage.set_staging_target_path(path);
    CHECK(f.Stage(stage) == StatusCode::INVALID_ARGUMENT);
    CHECK(f.message.find("staging_target_path") == 0);
    auto publish = f.PublishRequest();
    publish.set_target_path(path);
    CHECK(f.Publish(publish) == StatusCode::INVALID_ARGUMENT);
    CHECK(f.message.find("target_path") == 0);
    publish = f.PublishRequest();
    publish.set_staging_target_path(path);
    CHECK(f.Publish(publish) ==
          (path.empty() ? StatusCode::FAILED_PRECONDITION : StatusCode::INVALID_ARGUMENT));
    CHECK(f.Unpublish(f.volume.value(), path) == StatusCode::INVALID_ARGUMENT);
    CHECK(f.Unstage(f.volume.value(), path) == StatusCode::INVALID_ARGUMENT);
  }
  CHECK(f.IsClean());
}

TEST_CASE("a staging path that is absent, a file or a symlink is refused before anything is done") {
  NodeFixture f;
  std::filesystem::create_directory_symlink(f.staging, f.root / "link");
  std::ofstream(f.root / "file").close();
  for (const std::string name : {"absent", "absent/deeper", "link", "file", "file/deeper"}) {
    INFO(name);
    auto stage = f.StageRequest();
    stage.set_staging_target_path(f.root / name);
    CHECK(f.Stage(stage) == StatusCode::INVALID_ARGUMENT);
  }
  CHECK(f.IsClean());
}

TEST_CASE("a target path of the wrong kind is refused and left as it is") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  std::filesystem::create_directory_symlink(f.staging, f.target);
  CHECK(f.Publish() == StatusCode::INVALID_ARGUMENT);
  CHECK(f.Unpublish() == StatusCode::INVALID_ARGUMENT);
  CHECK(std::filesystem::is_symlink(f.target));
  std::filesystem::remove(f.target);
  std::ofstream(f.target).close();
  CHECK(f.Publish() == StatusCode::INVALID_ARGUMENT);
  auto publish = f.PublishRequest();
  publish.set_target_path(f.root / "no-parent/target");
  CHECK(f.Publish(publish) == StatusCode::INVALID_ARGUMENT);
  CHECK(f.MountCount() == 1);
}

TEST_CASE("a bad capability is refused by stage and publish") {
  using Change = std::function<void(csi::v1::VolumeCapability&)>;
  const std::vector<std::pair<Change, StatusCode>> changes = {
      {[](auto& c) { c.clear_access_mode(); }, StatusCode::INVALID_ARGUMENT},
      {[](auto& c) { c.mutable_access_mode()->set_mode(AccessMode::UNKNOWN); }, StatusCode::INVALID_ARGUMENT},
      {[](auto& c) { c.mutable_access_mode()->set_mode(static_cast<AccessMode::Mode>(99)); },
       StatusCode::INVALID_ARGUMENT},
      {[](auto& c) { c.clear_mount(); }, StatusCode::INVALID_ARGUMENT},
      {[](auto& c) { c.mutable_mount()->set_fs_type("ntfs"); }, StatusCode::INVALID_ARGUMENT},
      {[](auto& c) { c.mutable_mount()->set_fs_type(std::string(5000, 'x')); }, StatusCode::INVALID_ARGUMENT},
      {[](auto& c) { c.mutable_mount()->set_volume_mount_group("1000"); }, StatusCode::INVALID_ARGUMENT},
      {[](auto& c) { c.mutable_mount()->add_mount_flags("a\nb"); }, StatusCode::INVALID_ARGUMENT},
      {[](auto& c) { c.mutable_mount()->add_mount_flags("bind"); }, StatusCode::INVALID_ARGUMENT},
      {[](auto& c) { c.mutable_access_mode()->set_mode(AccessMode::MULTI_NODE_MULTI_WRITER); },
       StatusCode::FAILED_PRECONDITION},
      {[](auto& c) { c.mutable_access_mode()->set_mode(AccessMode::MULTI_NODE_SINGLE_WRITER); },
       StatusCode::FAILED_PRECONDITION},
  };
  NodeFixture f;
  for (const auto& [change, code] : changes) {
    auto stage = f.StageRequest();
    change(*stage.mutable_volume_capability());
    INFO(stage.volume_capability().ShortDebugString().substr(0, 200));
    CHECK(f.Stage(stage) == code);
    CHECK(f.message.size() < 500);
    auto publish = f.PublishRequest();
    *publish.mutable_volume_capability() = stage.volume_capability();
    CHECK(f.Publish(publish) == code);
  }
  auto stage = f.StageRequest();
  stage.clear_volume_capability();
  CHECK(f.Stage(stage) == StatusCode::INVALID_ARGUMENT);
  stage = f.StageRequest();
  (*stage.mutable_volume_context())["fsType"] = "zfs";
  CHECK(f.Stage(stage) == StatusCode::INVALID_ARGUMENT);
  CHECK(f.IsClean());
}

TEST_CASE("a publish context that is not whole is refused without touching the array") {
  NodeFixture f;
  auto stage = f.StageRequest();
  (*stage.mutable_publish_context())["device"] = "/dev/mock";
  CHECK(f.Stage(stage) == StatusCode::INVALID_ARGUMENT);
  CHECK(f.IsClean());
}

TEST_CASE("statistics and growth of what is not there are NOT_FOUND") {
  NodeFixture f;
  CHECK(f.Stats("unknown", "some/path") == StatusCode::NOT_FOUND);
  auto expand = f.ExpandRequest();
  expand.set_volume_id("unknown");
  expand.set_volume_path("some/path");
  CHECK(f.Expand(expand) == StatusCode::NOT_FOUND);
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  for (const std::string& path : {std::string("some/path"), f.root.string(), f.other_target}) {
    CHECK(f.Stats(f.volume.value(), path) == StatusCode::NOT_FOUND);
    expand = f.ExpandRequest();
    expand.set_volume_path(path);
    CHECK(f.Expand(expand) == StatusCode::NOT_FOUND);
  }
  CHECK(f.Stats(f.volume.value(), "") == StatusCode::INVALID_ARGUMENT);
  expand.set_volume_path("");
  CHECK(f.Expand(expand) == StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("a bad capacity range is refused") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  const std::tuple<int64_t, int64_t, StatusCode> ranges[] = {{-1, 0, StatusCode::INVALID_ARGUMENT},
                                                             {0, -1, StatusCode::INVALID_ARGUMENT},
                                                             {2 << 20, 1 << 20, StatusCode::INVALID_ARGUMENT},
                                                             {int64_t{1} << 40, 0, StatusCode::OUT_OF_RANGE},
                                                             {0, 1 << 20, StatusCode::OUT_OF_RANGE},
                                                             {0, 0, StatusCode::OK}};
  for (const auto& [required, limit, code] : ranges) {
    INFO(required << " " << limit);
    auto expand = f.ExpandRequest();
    expand.mutable_capacity_range()->set_required_bytes(required);
    expand.mutable_capacity_range()->set_limit_bytes(limit);
    CHECK(f.Expand(expand) == code);
  }
}

TEST_CASE("the node says who it is, what it reaches and what it can do") {
  NodeFixture f;
  csi::v1::NodeGetInfoRequest info_request;
  csi::v1::NodeGetInfoResponse info;
  REQUIRE(f.service->NodeGetInfo(nullptr, &info_request, &info).ok());
  CHECK(info.node_id() == f.node.value());
  CHECK(info.max_volumes_per_node() > 0);
  CHECK(info.accessible_topology().segments().at("array.lunkeeper.io/main") == "reachable");
  csi::v1::NodeGetCapabilitiesRequest request;
  csi::v1::NodeGetCapabilitiesResponse capabilities;
  REQUIRE(f.service->NodeGetCapabilities(nullptr, &request, &capabilities).ok());
  CHECK(capabilities.capabilities_size() == 6);
}

// As what mounts does: a file system that is smaller than its device cannot grow there.
TEST_CASE("a volume is staged read-only by any flag that says so, and again") {
  NodeFixture f;
  f.capability.mutable_mount()->add_mount_flags("noatime,ro");
  REQUIRE(f.Stage() == StatusCode::OK);
  CHECK(f.mounter.Mounts()->front().read_only);
  CHECK(f.Stage() == StatusCode::OK);
  // A pod need not say it once more.
  for (int repetition = 0; repetition < 2; ++repetition) CHECK(f.Publish() == StatusCode::OK);
  CHECK(f.mounter.Mounts()->back().read_only);
}

}  // namespace
}  // namespace lunkeeper
