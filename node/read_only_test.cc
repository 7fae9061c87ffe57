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

TEST_CASE("a reader's publish that ended before the device was closed is finished by the next call") {
  RawFixture f;
  f.mounter.FailNext("SetReadOnly", absl::InternalError("killed here"));
  CHECK(f.Publish(f.read_only) == StatusCode::INTERNAL);
  CHECK_FALSE(f.IsClosed());
  CHECK(f.Publish(f.read_only) == StatusCode::OK);
  CHECK(f.IsClosed());
}

}  // namespace lunkeeper
