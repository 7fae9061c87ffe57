// Failover as a whole with an array whose lists take seconds, or of which a part does not answer.
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

// There is nobody to probe here, so that the row of 10 s decides.
TEST_CASE("while a part of an array does not answer, nodes that have nothing there are failed over") {
  SlowWorld world(std::chrono::milliseconds(0));
  world.AddPod("db-0", "n1");
  const VolumeId hidden = world.AddPod("db-1", "n3");
  world.array->HideSessions(hidden, true);
  Settings settings;
  settings.budget_percent = 100;
  Failover& failover = world.Start("replica-1", settings);
  REQUIRE(Comes([&] { return world.slow->looks() >= 2; }));
  for (const char* name : {"n1", "n3"}) {
    world.PowerOff(name);
    world.HeartbeatOnArray(name, false);
  }
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  REQUIRE(Comes([&] { return Says(failover, "node n3", "a part of an array cannot say"); }));
  REQUIRE(Comes([&] { return world.IsOnLease("of array fake the leader sees only a part"); }));
  CHECK_FALSE(world.IsFenced("n3"));
  world.array->HideSessions(hidden, false);
  CHECK(Comes([&] { return world.Runs("db-1", "n2"); }));
}

}  // namespace lunkeeper::fencing
