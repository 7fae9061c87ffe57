#include "fencing/agent/path_watch.h"

#include <atomic>
#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "base/testing/empty_network.h"
#include "base/testing/silent_port.h"
#include "base/testing/test_host.h"
#include "fencing/agent/heartbeat_sender.h"

namespace lunkeeper {
namespace {

using testing::Eventually;

// All its answers come when it ends.
class LateProber final : public Prober {
 public:
  explicit LateProber(std::atomic<int>& asked) : asked_(asked) {}
  ~LateProber() override {
    for (const auto& done : waiting_) done(ProbeResult::kUnanswered);
  }
  void Probe(const std::string&, uint16_t, std::function<void(ProbeResult)> done) override {
    waiting_.push_back(std::move(done));
    ++asked_;
  }

 private:
  std::atomic<int>& asked_;
  std::vector<std::function<void(ProbeResult)>> waiting_;
};

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

TEST_CASE("that a portal is lost is said at once and once, and so is that it is heard again") {
  testing::SilentPort port;
  port.FallSilent();
  std::atomic<int> turned = 0;
  PathWatch paths(RealExecutor(), MakeProber, [&turned] { ++turned; });
  paths.WatchPortals({port.portal()});
  REQUIRE(Eventually([&] { return turned == 1; }));
  CHECK(paths.IsLost(port.portal()));
  port.Refuse();
  REQUIRE(Eventually([&] { return turned == 2; }));
  CHECK_FALSE(paths.IsLost(port.portal()));
  paths.WatchPortals({});
  CHECK(turned == 2);
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

TEST_CASE("a portal that is found lost while the heartbeats end wakes nobody") {
  std::atomic<int> asked = 0;
  Device waits;
  waits.volume = VolumeId("a");
  waits.health = DeviceHealth::kReconnecting;
  waits.portal = "192.0.2.1:3260";
  auto sender =
      StartHeartbeatSender({.node = NodeId("n1.00000000000000aa"),
                            .every = absl::Milliseconds(20),
                            .make_prober = [&] { return std::make_unique<LateProber>(asked); }},
                           [] { return std::vector<HeartbeatReceiver>(); },
                           {.devices = [&] { return std::vector<Device>{waits}; },
                            .fail = [](const Device&, const std::string&) { return absl::OkStatus(); },
                            .kubelet_ok = {}});
  REQUIRE(Eventually([&] { return asked >= 10; }));
  sender.reset();
}

}  // namespace lunkeeper
