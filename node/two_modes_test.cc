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

}  // namespace
}  // namespace lunkeeper
