// What a node says of the health of volumes, of file systems and of the storage.
#include "node/volume_health.h"

#include <algorithm>

#include "node/closed_volumes.h"
#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;
using Problems = std::vector<std::pair<int, std::string>>;  // status and reason

struct NodeHealth : NodeFixture {
  NodeHealth() {
    REQUIRE(Stage() == StatusCode::OK);
    REQUIRE(Publish() == StatusCode::OK);
  }
  StatusCode Ask(const csi::v1::NodeGetVolumeHealthRequest& request) {
    health.Clear();
    return service->NodeGetVolumeHealth(nullptr, &request, &health).error_code();
  }
  Problems OfVolume() {
    csi::v1::NodeGetVolumeHealthRequest request;
    request.set_volume_id(volume.value());
    request.set_staging_target_path(staging);
    request.set_volume_publish_path(target);
    REQUIRE(Ask(request) == StatusCode::OK);
    CHECK(health.volume_health().volume_id() == volume.value());
    Problems found;
    for (const auto& entry : health.volume_health().health_statuses()) {
      CHECK(entry.message().size() > 20);
      found.emplace_back(entry.status(), entry.reason());
    }
    return found;
  }
  Problems OfStorage() {
    csi::v1::NodeGetStorageHealthResponse response;
    REQUIRE(service->NodeGetStorageHealth(nullptr, nullptr, &response).ok());
    Problems found;
    for (const auto& entry : response.backend_health()) {
      CHECK(entry.message().size() > 20);
      found.emplace_back(entry.status(), entry.reason());
    }
    return found;
  }

  std::vector<VolumeId> ListClosed() { return closed.ListVolumes(initiator.List().value()); }

  ClosedVolumes closed{mounter, filesystem};
  csi::v1::NodeGetVolumeHealthResponse health;
};

TEST_CASE("a volume that works has nothing to say, and one that is not here is not found") {
  NodeHealth f;
  CHECK(f.OfVolume().empty());
  CHECK(f.OfStorage().empty());
  csi::v1::NodeGetVolumeHealthRequest request;
  CHECK(f.Ask(request) == StatusCode::INVALID_ARGUMENT);
  request.set_volume_id("fake-v0000000000000077");
  CHECK(f.Ask(request) == StatusCode::NOT_FOUND);
  request.set_volume_id(f.volume.value());
  request.set_volume_publish_path("relative");
  CHECK(f.Ask(request) == StatusCode::INVALID_ARGUMENT);
  request.set_volume_publish_path(f.target);
  request.set_staging_target_path("/a/../b");
  CHECK(f.Ask(request) == StatusCode::INVALID_ARGUMENT);
  request.set_staging_target_path(f.staging);
  CHECK(f.Ask(request) == StatusCode::OK);
}

TEST_CASE("a volume whose target is away is degraded, until it is back") {
  NodeHealth f;
  f.initiator.SetHealth(f.volume, DeviceHealth::kReconnecting, "no answer to a ping");
  CHECK(f.OfVolume() == Problems{{csi::v1::DEGRADED, "Reconnecting"}});
  CHECK_THAT(f.health.volume_health().health_statuses(0).message(), Catch::Contains("no answer to a ping"));
  f.initiator.SetHealth(f.volume, DeviceHealth::kHealthy, "");
  CHECK(f.OfVolume().empty());
}

TEST_CASE("a device that failed for good is inaccessible, and a fenced one says so") {
  NodeHealth f;
  f.initiator.SetHealth(f.volume, DeviceHealth::kFailed, "the target stayed away");
  CHECK(f.OfVolume() == Problems{{csi::v1::INACCESSIBLE, "DeviceFailed"}});
  const Term term = f.array.BeginTerm("test").value();
  REQUIRE(f.array.FenceNode(term, {.node = f.node, .volumes = {f.volume}}).ok());
  CHECK(f.OfVolume() == Problems{{csi::v1::INACCESSIBLE, "Fenced"}});
  // Who does not know does not say so.
  f.array.FailWith(absl::UnavailableError("no controller answers"));
  CHECK(f.OfVolume() == Problems{{csi::v1::INACCESSIBLE, "DeviceFailed"}});
}

TEST_CASE("a file system that closed itself is degraded; one that was asked to be read-only is not") {
  NodeHealth f;
  f.mounter.CloseFilesystem(f.initiator.Find(f.volume)->value().path);
  CHECK(f.OfVolume() == Problems{{csi::v1::DEGRADED, "FilesystemReadOnly"}});
  CHECK(f.ListClosed() == std::vector{f.volume});

  NodeHealth reader;
  REQUIRE(reader.Unpublish() == StatusCode::OK);
  REQUIRE(reader.Unstage() == StatusCode::OK);
  reader.capability.mutable_mount()->add_mount_flags("ro");
  REQUIRE(reader.Stage() == StatusCode::OK);
  reader.mounter.CloseFilesystem(reader.initiator.Find(reader.volume)->value().path);
  csi::v1::NodeGetVolumeHealthRequest staged;
  staged.set_volume_id(reader.volume.value());
  staged.set_staging_target_path(reader.staging);
  REQUIRE(reader.Ask(staged) == StatusCode::OK);
  CHECK(reader.health.volume_health().health_statuses().empty());
  CHECK(reader.ListClosed().empty());
}

// Its mounts look as before.
TEST_CASE(
    "an XFS that has shut itself down has closed itself; one that does not answer is not said to have") {
  NodeFixture f;
  f.capability.mutable_mount()->set_fs_type("xfs");
  REQUIRE(f.Stage() == StatusCode::OK);
  ClosedVolumes volumes(f.mounter, f.filesystem);
  const auto closed = [&] { return volumes.ListVolumes(f.initiator.List().value()); };
  const absl::Status late = absl::DeadlineExceededError("still running");
  CHECK(closed().empty());
  f.filesystem.FailNext("UsageOf", late);
  CHECK(closed().empty());
  const absl::Status error = absl::InternalError("input/output error");
  f.filesystem.FailNext("UsageOf", error);
  CHECK(closed().empty());  // as when the child that asks is killed
  f.filesystem.FailNext("UsageOf", error);
  CHECK(closed() == std::vector{f.volume});
  f.filesystem.FailNext("UsageOf", late);
  CHECK(closed() == std::vector{f.volume});
  CHECK(closed().empty());
}

TEST_CASE("where a volume is mounted is told by its device") {
  NodeHealth f;
  const auto targets = ListMountTargets(f.initiator.List().value(), f.mounter);
  REQUIRE(targets.contains(f.volume));
  CHECK_THAT(targets.at(f.volume), Catch::VectorContains(f.staging));
  REQUIRE(f.Unpublish() == StatusCode::OK);
  REQUIRE(f.Unstage() == StatusCode::OK);
  CHECK(ListMountTargets(f.initiator.List().value(), f.mounter).empty());
}

TEST_CASE("a file system that fails or does not answer is told from each other") {
  NodeHealth f;
  f.filesystem.FailNext("UsageOf", absl::InternalError("input/output error"));
  CHECK(f.OfVolume() == Problems{{csi::v1::INACCESSIBLE, "FilesystemFailed"}});
  f.filesystem.FailNext("UsageOf", absl::DeadlineExceededError("still running"));
  CHECK(f.OfVolume() == Problems{{csi::v1::DEGRADED, "FilesystemNotAnswering"}});
}

TEST_CASE("a volume that somebody unmounted is not well where it should be") {
  NodeHealth f;
  REQUIRE(f.mounter.Unmount(f.target, /*lazy=*/false, absl::InfiniteFuture()).ok());
  CHECK(f.OfVolume() == Problems{{csi::v1::INACCESSIBLE, "NotMounted"}});
  CHECK_THAT(f.health.volume_health().health_statuses(0).message(), Catch::Contains(f.target));
  csi::v1::NodeGetVolumeHealthRequest anywhere;
  anywhere.set_volume_id(f.volume.value());
  REQUIRE(f.Ask(anywhere) == StatusCode::OK);
  CHECK(f.health.volume_health().health_statuses().empty());
  REQUIRE(f.Publish() == StatusCode::OK);
  REQUIRE(f.mounter.Unmount(f.staging, /*lazy=*/false, absl::InfiniteFuture()).ok());
  CHECK(f.OfVolume() == Problems{{csi::v1::INACCESSIBLE, "NotMounted"}});
  CHECK_THAT(f.health.volume_health().health_statuses(0).message(), Catch::Contains(f.staging));
}

TEST_CASE("a raw block volume is staged without a mount, and well") {
  NodeFixture f;
  f.capability.mutable_block();
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  csi::v1::NodeGetVolumeHealthRequest request;
  request.set_volume_id(f.volume.value());
  request.set_staging_target_path(f.staging);
  request.set_volume_publish_path(f.target);
  csi::v1::NodeGetVolumeHealthResponse health;
  REQUIRE(f.service->NodeGetVolumeHealth(nullptr, &request, &health).ok());
  CHECK(health.volume_health().health_statuses().empty());
}

TEST_CASE("a data path that does not answer is told of its volumes too") {
  NodeHealth f;
  f.initiator.FailNext("Find", absl::DeadlineExceededError("no answer within 1 s"));
  CHECK(f.OfVolume() == Problems{{csi::v1::INACCESSIBLE, "DataPathNotAnswering"}});
}

TEST_CASE("the storage is unreachable when all volumes of an array wait, and degraded when some do") {
  NodeHealth f;
  const VolumeId second = f.CreateVolume("pvc-2");
  const std::string staging = f.root / "staging-2";
  std::filesystem::create_directory(staging);
  auto stage = f.StageRequest();
  stage.set_volume_id(second.value());
  stage.set_staging_target_path(staging);
  REQUIRE(f.Stage(stage) == StatusCode::OK);

  f.initiator.SetHealth(second, DeviceHealth::kReconnecting, "no answer to a ping");
  CHECK(f.OfStorage() == Problems{{csi::v1::STORAGE_DEGRADED, "ArrayPartlyAnswering"}});
  f.initiator.SetHealth(f.volume, DeviceHealth::kReconnecting, "no answer to a ping");
  CHECK(f.OfStorage() == Problems{{csi::v1::STORAGE_UNREACHABLE, "ArrayNotAnswering"}});
  // A device that failed has left its array, whatever that does.
  f.initiator.SetHealth(f.volume, DeviceHealth::kFailed, "fenced");
  f.initiator.SetHealth(second, DeviceHealth::kHealthy, "");
  CHECK(f.OfStorage().empty());
  f.initiator.FailNext("List", absl::UnavailableError("the data path does not answer"));
  CHECK(f.OfStorage() == Problems{{csi::v1::STORAGE_UNREACHABLE, "DataPathNotAnswering"}});
}

}  // namespace
}  // namespace lunkeeper
