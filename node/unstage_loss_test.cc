// What an unstage says of data that a file system could not write. The real thing is in
// e2e/faults/test_full_pool.py.
#include <catch2/catch.hpp>

#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

const absl::Status kLost = absl::DataLossError("Input/output error");

// No call has told of the loss yet.
void LoseInUnstage(NodeFixture& f) {
  REQUIRE(f.Stage() == StatusCode::OK);
  f.mounter.FailNext("WriteBack", kLost);
  f.initiator.FailNext("Detach", absl::UnavailableError("told to fail"));
  REQUIRE(f.Unstage() == StatusCode::UNAVAILABLE);
}

TEST_CASE("an unstage tells of unwritten data once, when nothing is left to do") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.mounter.FailNext("WriteBack", kLost);
  CHECK(f.Unstage() == StatusCode::DATA_LOSS);
  CHECK(f.message.find(f.volume.value()) != std::string::npos);
  CHECK(f.IsClean());  // the next node does not wait for a repeated call
  CHECK(f.Unstage() == StatusCode::OK);
}

TEST_CASE("unwritten data is told of by the call that ends the unstage, whatever fails before") {
  const std::string step = GENERATE("Unmount", "Detach");
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.mounter.FailNext("WriteBack", kLost);
  f.mounter.FailNext(step, absl::UnavailableError("told to fail"));
  f.initiator.FailNext(step, absl::UnavailableError("told to fail"));
  CHECK(f.Unstage() == StatusCode::UNAVAILABLE);
  CHECK(f.Unstage() == StatusCode::DATA_LOSS);
  CHECK(f.IsClean());
  CHECK(f.Unstage() == StatusCode::OK);
}

TEST_CASE("a loss that both the file system and the device tell of is told by the device alone") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.mounter.FailNext("WriteBack", kLost);
  f.initiator.FailNext("Detach", absl::DataLossError("3 writes failed"));
  CHECK(f.Unstage() == StatusCode::DATA_LOSS);
  CHECK(f.message.find("3 writes failed") != std::string::npos);
  CHECK(f.Unstage() == StatusCode::OK);
}

TEST_CASE("an unstage does not unmount while the file system is written back") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.mounter.FailNext("WriteBack", absl::DeadlineExceededError("not done in time"));
  CHECK(f.Unstage() == StatusCode::DEADLINE_EXCEEDED);
  CHECK(f.MountCount() == 1);
  CHECK(f.Unstage() == StatusCode::OK);
  CHECK(f.IsClean());
}

TEST_CASE("nothing but time keeps an unstage: a file system that cannot be asked is unmounted") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.mounter.FailNext("WriteBack", absl::InternalError("Function not implemented"));
  CHECK(f.Unstage() == StatusCode::OK);
  CHECK(f.IsClean());
}

TEST_CASE("a volume that failed for good, or cannot be written, is not asked for unwritten data") {
  NodeFixture f;
  if (GENERATE(true, false)) {
    REQUIRE(f.Stage() == StatusCode::OK);
    f.initiator.SetHealth(f.volume, DeviceHealth::kFailed, "fenced");
  } else {
    f.capability = NodeFixture::Capability(AccessMode::MULTI_NODE_READER_ONLY);
    f.filesystem.SetContent({.content = Content::kFilesystem, .filesystem_bytes = 16 << 20});
    REQUIRE(f.Stage() == StatusCode::OK);
  }
  f.mounter.FailNext("WriteBack", kLost);
  CHECK(f.Unstage() == StatusCode::OK);
  CHECK(f.IsClean());
}

// The log has it. What the node has of the volume then may be newer, as from a backup.
TEST_CASE("a loss is not told by the unstage of a later stay") {
  NodeFixture f;
  NodeServiceOptions options{.node = f.node, .grace_period = {}, .doubt = {}, .topology = {}};
  f.service = std::make_unique<NodeService>(options, f.initiator, f.initiator, f.filesystem, f.mounter,
                                            f.grants.get());
  LoseInUnstage(f);
  f.initiator.SetHealth(f.volume, DeviceHealth::kFailed, "fenced");
  if (GENERATE(false, true)) f.service->RemoveForgotten();
  REQUIRE(f.Stage() == StatusCode::OK);
  CHECK(f.Unstage() == StatusCode::OK);
}

TEST_CASE("a loss is told by the stage that ends a stay whose grant is another one") {
  NodeFixture f;
  LoseInUnstage(f);
  REQUIRE(f.array.ReleaseGrant(f.volume, f.node, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(f.Stage() == StatusCode::DATA_LOSS);
  CHECK(f.Stage() == StatusCode::OK);
  CHECK(f.Unstage() == StatusCode::OK);
}

TEST_CASE("a failed stage gives the volume back, although a tool's writes failed") {
  NodeFixture f;
  f.filesystem.FailNext("Make", absl::UnavailableError("no space left"));
  f.initiator.FailNext("Detach", kLost);
  CHECK(f.Stage() == StatusCode::UNAVAILABLE);
  CHECK(f.IsClean());
}

}  // namespace
}  // namespace lunkeeper
