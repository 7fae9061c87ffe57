// A volume that may be both, as one of which nobody knew what it was made for: never both at a time.
#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

TEST_CASE("a device that somebody has raw is neither formatted, nor checked, nor mounted") {
  NodeFixture f;
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, /*block=*/true);
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER);
  CHECK(f.Stage() == StatusCode::ALREADY_EXISTS);
  CHECK(f.message.find(f.target) != std::string::npos);
  CHECK(f.filesystem.Calls().empty());
  CHECK(f.MountCount() == 1);
  CHECK(f.Granted());  // and what the writer has stays
  REQUIRE(f.Unpublish() == StatusCode::OK);
  CHECK(f.Stage() == StatusCode::OK);
}

TEST_CASE("a mounted volume's device is given to nobody raw") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, /*block=*/true);
  CHECK(f.Publish() == StatusCode::FAILED_PRECONDITION);
  CHECK_FALSE(std::filesystem::exists(f.target));
  CHECK(f.MountCount() == 1);
}

// As with a second PersistentVolume of the same handle: kubelet knows volumes by their handle, has this one
// as staged, and only publishes it.
TEST_CASE("a publish never makes a file system") {
  NodeFixture f;
  const bool made_for_raw = GENERATE(false, true);
  CAPTURE(made_for_raw);
  if (made_for_raw) {
    VolumeSpec spec;
    spec.name = "raw";
    spec.size_bytes = 64 << 20;
    spec.uses.Add(Access::kExclusive, VolumeMode::kBlock);
    f.volume = f.array.CreateVolume(spec)->id;
  }
  const auto raw = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, /*block=*/true);
  f.capability = raw;
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER);
  CHECK(f.Publish() == StatusCode::FAILED_PRECONDITION);
  CHECK(f.filesystem.Calls().empty());
  CHECK(f.MountCount() == 0);
}

TEST_CASE("a publish makes no file system on a volume that was unstaged meanwhile") {
  NodeFixture f;
  const NodeServiceOptions options{.node = f.node, .stages_for_publish = true, .topology = {}};
  f.service = std::make_unique<NodeService>(options, f.initiator, f.initiator, f.filesystem, f.mounter,
                                            f.grants.get());
  CHECK(f.Publish() == StatusCode::FAILED_PRECONDITION);
  CHECK(f.filesystem.Calls().empty());
  CHECK(f.IsClean());
}

TEST_CASE("a device that a tool still works on is given to nobody raw") {
  NodeFixture f;
  f.filesystem.SetContent({.content = Content::kFilesystem, .type = FilesystemType::kExt4});
  f.filesystem.FailNext("Check", absl::AbortedError("e2fsck is still at work"));
  REQUIRE(f.Stage() == StatusCode::ABORTED);
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, /*block=*/true);
  f.filesystem.FailNext("PrepareRaw", absl::AbortedError("e2fsck is still at work"));
  CHECK(f.Publish() == StatusCode::ABORTED);
  CHECK(f.MountCount() == 0);
  f.filesystem.FailNext("PrepareRaw", absl::AbortedError("e2fsck is still at work"));
  CHECK(f.Stage() == StatusCode::ABORTED);
  CHECK(f.Attached());  // the tool has it
  CHECK(f.Publish() == StatusCode::OK);
}

// Killed in the middle of its check, it is mounted nowhere.
TEST_CASE("a volume made for file systems is given to nobody raw, also while it is not mounted") {
  NodeFixture f;
  VolumeSpec spec;
  spec.name = "files";
  spec.size_bytes = 64 << 20;
  spec.uses.Add(Access::kExclusive, VolumeMode::kFilesystem);
  f.volume = f.array.CreateVolume(spec)->id;
  f.filesystem.SetContent({.content = Content::kFilesystem, .type = FilesystemType::kExt4});
  f.filesystem.FailNext("Check", absl::AbortedError("e2fsck is still at work"));
  REQUIRE(f.Stage() == StatusCode::ABORTED);
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, /*block=*/true);
  CHECK(f.Publish() == StatusCode::FAILED_PRECONDITION);
  CHECK(f.MountCount() == 0);
}

}  // namespace
}  // namespace lunkeeper
