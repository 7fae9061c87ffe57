#include "node/limit_watch.h"

#include <catch2/catch.hpp>

#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

VolumeLimits LimitsOf(NodeFixture& f) { return f.initiator.Find(f.volume)->value().limits; }

}  // namespace

TEST_CASE("a volume is attached with its limits, and gets others while it is staged") {
  NodeFixture f;
  REQUIRE(f.array.ModifyVolume(f.volume, {.max_iops = 200}).ok());
  REQUIRE(f.Stage() == grpc::StatusCode::OK);
  CHECK(LimitsOf(f) == VolumeLimits{.iops = 200, .bytes_per_second = 0, .version = 1});
  LimitWatch watch(
      f.array, f.node, [&] { return f.initiator.List(); },
      [&](const VolumeId& volume, const VolumeLimits& limits) {
        return f.initiator.SetLimits(volume, limits);
      },
      absl::Milliseconds(10));
  REQUIRE(f.array.ModifyVolume(f.volume, {.max_iops = 300, .max_bandwidth = 8 << 20}).ok());
  CHECK(testing::Eventually(
      [&] { return LimitsOf(f) == VolumeLimits{.iops = 300, .bytes_per_second = 8 << 20, .version = 2}; }));
  // Without an answer they stay.
  f.array.FailWith(absl::UnavailableError("away"));
  f.array.FailWith(absl::OkStatus());
  REQUIRE(f.array.ModifyVolume(f.volume, {.max_iops = 0, .max_bandwidth = 0}).ok());
  CHECK(testing::Eventually([&] { return LimitsOf(f).version == 3; }));
  CHECK(LimitsOf(f).iops == 0);
}

}  // namespace lunkeeper
