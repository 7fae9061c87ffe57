// Where a staged volume's grant comes from: from another node that releases it, from a publish context, from
// nowhere; and what happens once it is gone.

#include <thread>

#include "devices/array/publish_context.h"
#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

TEST_CASE("a volume that another node holds is waited for, and staged when it is free") {
  NodeFixture f;
  const NodeId other("worker-2.fedcba9876543210");
  REQUIRE(f.array.AcquireGrant({f.volume, other, Access::kExclusive, GrantOwner::kNode}, absl::ZeroDuration())
              .ok());
  grpc::StatusCode staged = StatusCode::UNKNOWN;
  grpc::StatusCode meanwhile = StatusCode::UNKNOWN;
  std::thread waiting([&] { staged = f.Stage(); });
  while (f.array.Waiting() == 0) std::this_thread::yield();
  csi::v1::NodeUnstageVolumeRequest request;
  csi::v1::NodeUnstageVolumeResponse response;
  request.set_volume_id(f.volume.value());
  request.set_staging_target_path(f.staging);
  meanwhile = f.service->NodeUnstageVolume(nullptr, &request, &response).error_code();
  REQUIRE(f.array.ReleaseGrant(f.volume, other, GrantOwner::kNode, kAnyGeneration).ok());
  waiting.join();
  CHECK(staged == StatusCode::OK);
  CHECK(meanwhile == StatusCode::ABORTED);
}

TEST_CASE("the first stage of a volume that another node holds soon says who it is, and the next one waits") {
  NodeFixture f;
  f.service = f.MakeService(f.grants.get(), /*first_wait=*/absl::Milliseconds(50));
  const NodeId other("worker-2.fedcba9876543210");
  REQUIRE(f.array.AcquireGrant({f.volume, other, Access::kExclusive}, absl::ZeroDuration()).ok());
  CHECK(f.Stage() == StatusCode::DEADLINE_EXCEEDED);
  CHECK_THAT(f.message, Catch::Contains(other.value()));
  StatusCode staged = StatusCode::UNKNOWN;
  std::thread staging([&] { staged = f.Stage(); });
  while (f.array.Waiting() == 0) std::this_thread::yield();
  absl::SleepFor(absl::Milliseconds(100));  // longer than the first one waits
  CHECK(f.array.Waiting() == 1);
  REQUIRE(f.array.ReleaseGrant(f.volume, other, GrantOwner::kNode, kAnyGeneration).ok());
  staging.join();
  CHECK(staged == StatusCode::OK);
}

TEST_CASE("without a publish context and without a source of grants, stage says what is missing") {
  NodeFixture f;
  f.service = f.MakeService(nullptr);
  CHECK(f.Stage() == StatusCode::FAILED_PRECONDITION);
  CHECK(f.message.find("publish_context") != std::string::npos);
}

TEST_CASE("a publish context is used instead of asking, and unstage leaves the orchestrator's grant") {
  const bool with_source = GENERATE(false, true);
  NodeFixture f;
  if (!with_source) f.service = f.MakeService(nullptr);
  const auto grant = f.array.AcquireGrant({f.volume, f.node, Access::kExclusive, GrantOwner::kOrchestrator},
                                          absl::ZeroDuration());
  REQUIRE(grant.ok());
  auto stage = f.StageRequest();
  for (const auto& [key, value] : ToPublishContext(*grant)) (*stage.mutable_publish_context())[key] = value;
  REQUIRE(f.Stage(stage) == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  REQUIRE(f.Unpublish() == StatusCode::OK);
  REQUIRE(f.Unstage() == StatusCode::OK);
  CHECK(f.Granted());
  CHECK_FALSE(f.Attached());
}

TEST_CASE("a publish context for another node is refused") {
  NodeFixture f;
  const auto grant = f.array.AcquireGrant(
      {f.volume, NodeId("worker-2.0"), Access::kExclusive, GrantOwner::kOrchestrator}, absl::ZeroDuration());
  REQUIRE(grant.ok());
  auto stage = f.StageRequest();
  for (const auto& [key, value] : ToPublishContext(*grant)) (*stage.mutable_publish_context())[key] = value;
  CHECK(f.Stage(stage) == StatusCode::FAILED_PRECONDITION);
  CHECK(f.message.find(grant->connection.chap.secret) == std::string::npos);
}

TEST_CASE("after its grant is gone a volume is not published again") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.array.ReleaseGrant(f.volume, f.node, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(f.Publish() == StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace lunkeeper
