// SINGLE_NODE_SINGLE_WRITER: one target path a volume.
#include <fstream>

#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

TEST_CASE("a single writer gets one target path, others as many as they like") {
  const bool block = GENERATE(false, true);
  const auto [mode, second] = GENERATE(table<AccessMode::Mode, StatusCode>(
      {{AccessMode::SINGLE_NODE_SINGLE_WRITER, StatusCode::FAILED_PRECONDITION},
       {AccessMode::SINGLE_NODE_MULTI_WRITER, StatusCode::OK},
       {AccessMode::SINGLE_NODE_WRITER, StatusCode::OK}}));
  NodeFixture f;
  f.capability = NodeFixture::Capability(mode, block);
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  auto publish = f.PublishRequest();
  publish.set_target_path(f.other_target);
  CHECK(f.Publish(publish) == second);
  CHECK(std::filesystem::exists(f.other_target) == (second == StatusCode::OK));
}

TEST_CASE("a single writer's publish is repeated while somebody has bound its target elsewhere") {
  const bool block = GENERATE(false, true);  // kubelet's own bind of a raw device, or a subPath
  NodeFixture f;
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_SINGLE_WRITER, block);
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  const std::string bound = f.root / "pods/bound";
  if (block) std::ofstream(bound).flush();
  if (!block) std::filesystem::create_directory(bound);
  const std::string source = block ? f.initiator.Find(f.volume)->value().path : f.target;
  REQUIRE(f.mounter.Bind(source, bound, false, absl::InfiniteFuture()).ok());
  CHECK(f.Publish() == StatusCode::OK);
  REQUIRE(f.Unpublish() == StatusCode::OK);
  CHECK(f.Publish() == StatusCode::FAILED_PRECONDITION);  // a new target is refused as before
  CHECK(f.message.find(bound) != std::string::npos);
}

}  // namespace
}  // namespace lunkeeper
