#include "fencing/agent/path_watch.h"

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "base/testing/silent_port.h"

namespace lunkeeper {
namespace {

bool Comes(const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

}  // namespace

TEST_CASE("a portal that refuses is reached; one that falls silent is lost until it is heard again") {
  testing::SilentPort port;
  PathWatch paths;
  paths.WatchPortals({port.portal()});
  const absl::Time begun = absl::Now();
  CHECK(Comes([&] { return paths.IsLost(port.portal()) || absl::Now() - begun > absl::Seconds(2); }));
  CHECK_FALSE(paths.IsLost(port.portal()));
  port.FallSilent();
  CHECK(Comes([&] { return paths.IsLost(port.portal()); }));
  port.Refuse();
  CHECK(Comes([&] { return !paths.IsLost(port.portal()); }));
}

TEST_CASE("what is not watched is not lost, and begins anew when it is watched again") {
  testing::SilentPort port;
  port.FallSilent();
  PathWatch paths;
  CHECK_FALSE(paths.IsLost(port.portal()));
  paths.WatchPortals({port.portal()});
  REQUIRE(Comes([&] { return paths.IsLost(port.portal()); }));
  paths.WatchPortals({});
  CHECK_FALSE(paths.IsLost(port.portal()));
  paths.WatchPortals({port.portal(), "not a portal"});
  CHECK_FALSE(paths.IsLost(port.portal()));
  CHECK_FALSE(paths.IsLost("not a portal"));
}

}  // namespace lunkeeper
