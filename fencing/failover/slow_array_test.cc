// Failover as a whole with an array whose lists take seconds.
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "fencing/failover/testing/failover_world.h"
#include "fencing/failover/testing/slow_array.h"

namespace lunkeeper::fencing {
namespace {

struct SlowWorld : FailoverWorld {
  explicit SlowWorld(std::chrono::milliseconds look_takes)
      : slow(std::make_shared<SlowArray>(*array, look_takes)) {
    arrays = MakeOneArray("fake", slow);
    for (const char* name : {"n1", "n2", "n3", "n4", "n5"}) HeartbeatOnArray(name, true);
  }
  size_t CountRecords() { return static_cast<size_t>(api.CountWrites(absl::StrCat("POST ", kRecords))); }

  std::shared_ptr<SlowArray> slow;
};

}  // namespace

TEST_CASE("a node that only a slow array hears is held, and fenced when that hears it no more") {
  const auto look_takes = GENERATE(std::chrono::milliseconds(1200), std::chrono::milliseconds(3000));
  SlowWorld world(look_takes);
  const VolumeId volume = world.AddPod("db-0", "n1");
  Failover& failover = world.Start();
  REQUIRE(Comes([&] { return world.slow->looks() >= 2; }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return Says(failover, "node n1", "cut off from the control plane"); }));
  const int looks = world.slow->looks();
  REQUIRE(Comes([&] { return world.slow->looks() >= looks + 3; }));
  CHECK(world.CountRecords() == 0);
  CHECK(world.Holds("n1", volume));
  world.HeartbeatOnArray("n1", false);
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK(world.CountRecords() == 1);
}

}  // namespace lunkeeper::fencing
