// Raw block volumes that are published read-only.
#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

struct RawFixture : NodeFixture {
  RawFixture() {
    capability = Capability(AccessMode::SINGLE_NODE_WRITER, /*block=*/true);
    REQUIRE(Stage() == StatusCode::OK);
    read_only = PublishRequest();
    read_only.set_readonly(true);
  }
  bool IsClosed() { return mounter.IsReadOnly(initiator.Find(volume)->value().path); }

  csi::v1::NodePublishVolumeRequest read_only;
};

}  // namespace

TEST_CASE("a raw device is closed to writes when a reader has it, and opened for the next writer") {
  RawFixture f;
  REQUIRE(f.Publish(f.read_only) == StatusCode::OK);
  CHECK(f.Mounts().back().read_only);
  CHECK(f.IsClosed());
  CHECK(f.Publish() == StatusCode::ALREADY_EXISTS);  // there, but for writing
  CHECK(f.IsClosed());
  REQUIRE(f.Unpublish() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  CHECK_FALSE(f.IsClosed());
}

TEST_CASE("a reader of a raw device does not close it to a writer beside it") {
  RawFixture f;
  REQUIRE(f.Publish(f.read_only) == StatusCode::OK);
  auto writer = f.PublishRequest();
  writer.set_target_path(f.other_target);
  REQUIRE(f.Publish(writer) == StatusCode::OK);
  CHECK_FALSE(f.IsClosed());
  REQUIRE(f.Publish(f.read_only) == StatusCode::OK);  // repeated
  CHECK_FALSE(f.IsClosed());
}

TEST_CASE("a raw device is closed to the reader that is left when the writer leaves") {
  RawFixture f;
  REQUIRE(f.Publish(f.read_only) == StatusCode::OK);
  auto writer = f.PublishRequest();
  writer.set_target_path(f.other_target);
  REQUIRE(f.Publish(writer) == StatusCode::OK);

  SECTION("at once") {}
  SECTION("also when the call ended before it did that, and is repeated") {
    f.mounter.FailNext("SetReadOnly", absl::InternalError("killed here"));
    CHECK(f.Unpublish(f.volume.value(), f.other_target) == StatusCode::INTERNAL);
    CHECK_FALSE(f.IsClosed());
  }
  CHECK(f.Unpublish(f.volume.value(), f.other_target) == StatusCode::OK);
  CHECK(f.IsClosed());
}

TEST_CASE("a raw device that only writers had stays open when the last of them leaves") {
  RawFixture f;
  REQUIRE(f.Publish() == StatusCode::OK);
  f.mounter.FailNext("SetReadOnly", absl::InternalError("nobody asks for this"));
  CHECK(f.Unpublish() == StatusCode::OK);
  CHECK_FALSE(f.IsClosed());
}

TEST_CASE("a file system that is left with readers alone keeps its device as it was") {
  NodeFixture f;
  f.capability.mutable_mount()->add_mount_flags("ro");
  f.filesystem.SetContent({.content = Content::kFilesystem, .filesystem_bytes = 64 << 20});
  REQUIRE(f.Stage() == StatusCode::OK);
  auto reader = f.PublishRequest();
  reader.set_readonly(true);
  REQUIRE(f.Publish(reader) == StatusCode::OK);
  REQUIRE(f.Unpublish() == StatusCode::OK);
  CHECK(f.MountCount() == 1);
  CHECK_FALSE(f.mounter.IsReadOnly(f.initiator.Find(f.volume)->value().path));
}

TEST_CASE("a file system that is mounted read-only on a writable device does not grow, and its pods start") {
  NodeFixture f;
  f.capability.mutable_mount()->add_mount_flags("ro");
  f.filesystem.SetContent({.content = Content::kFilesystem, .filesystem_bytes = 64 << 20});
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.array.ExpandVolume(f.volume, 128 << 20).ok());
  auto request = f.ExpandRequest();
  request.set_volume_path(f.staging);
  CHECK(f.Expand(request) == StatusCode::OK);
  CHECK(f.expanded.capacity_bytes() == 128 << 20);
  CHECK_FALSE(f.filesystem.Called("GrowMounted"));
}

TEST_CASE("a file system that a pod may only read grows by the mount of another that may write") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  auto reader = f.PublishRequest();
  reader.set_readonly(true);
  REQUIRE(f.Publish(reader) == StatusCode::OK);
  REQUIRE(f.array.ExpandVolume(f.volume, 128 << 20).ok());
  CHECK(f.Expand(f.ExpandRequest()) == StatusCode::OK);
  CHECK(f.filesystem.GrownAt() == f.staging);
}

TEST_CASE("a reader whose device failed does not keep another target from being unpublished") {
  RawFixture f;
  REQUIRE(f.Publish(f.read_only) == StatusCode::OK);
  auto writer = f.PublishRequest();
  writer.set_target_path(f.other_target);
  REQUIRE(f.Publish(writer) == StatusCode::OK);
  f.initiator.SetHealth(f.volume, DeviceHealth::kFailed, "fenced");
  f.mounter.FailNext("SetReadOnly", absl::InternalError("Input/output error"));
  CHECK(f.Unpublish(f.volume.value(), f.other_target) == StatusCode::OK);
  CHECK(f.Unpublish() == StatusCode::OK);
}

TEST_CASE("a reader's publish that ended before the device was closed is finished by the next call") {
  RawFixture f;
  f.mounter.FailNext("SetReadOnly", absl::InternalError("killed here"));
  CHECK(f.Publish(f.read_only) == StatusCode::INTERNAL);
  CHECK_FALSE(f.IsClosed());
  CHECK(f.Publish(f.read_only) == StatusCode::OK);
  CHECK(f.IsClosed());
}

}  // namespace lunkeeper
