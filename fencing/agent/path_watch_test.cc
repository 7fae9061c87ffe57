#include "fencing/agent/path_watch.h"

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "base/testing/empty_network.h"
#include "base/testing/silent_port.h"
#include "base/testing/test_host.h"

namespace lunkeeper {
namespace {

using testing::Eventually;

}  // namespace

TEST_CASE("a portal that refuses is reached; one that falls silent is lost until it is heard again") {
  testing::SilentPort port;
  PathWatch paths;
  paths.WatchPortals({port.portal()});
  const absl::Time begun = absl::Now();
  CHECK(Eventually([&] { return paths.IsLost(port.portal()) || absl::Now() - begun > absl::Seconds(2); }));
  CHECK_FALSE(paths.IsLost(port.portal()));
  port.FallSilent();
  CHECK(Eventually([&] { return paths.IsLost(port.portal()); }));
  port.Refuse();
  CHECK(Eventually([&] { return !paths.IsLost(port.portal()); }));
}

TEST_CASE("a portal to which this node has no route is lost") {
  testing::InEmptyNetwork([] {
    PathWatch paths;
    paths.WatchPortals({"10.9.8.7:3260"});
    CHECK(Eventually([&] { return paths.IsLost("10.9.8.7:3260"); }));
  });
}

TEST_CASE("what is not watched is not lost, and begins anew when it is watched again") {
  testing::SilentPort port;
  port.FallSilent();
  PathWatch paths;
  CHECK_FALSE(paths.IsLost(port.portal()));
  paths.WatchPortals({port.portal()});
  REQUIRE(Eventually([&] { return paths.IsLost(port.portal()); }));
  paths.WatchPortals({});
  CHECK_FALSE(paths.IsLost(port.portal()));
  paths.WatchPortals({port.portal(), "not a portal"});
  CHECK_FALSE(paths.IsLost(port.portal()));
  CHECK_FALSE(paths.IsLost("not a portal"));
}

}  // namespace lunkeeper
