#include "fencing/sim/process.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/periodic.h"

// world.h only declares what lives in a world.
#include "fencing/sim/api.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

struct Rig {
  World world{1, {}, false};
  Process process{world, world.AddEndpoint(), {}};
  const Endpoint other = world.AddEndpoint();
  std::vector<std::string> said;

  void Say(const std::string& what) {
    said.push_back(std::to_string(world.now().since_start().milliseconds()) + " " + what);
  }
  std::optional<int> Ask(Span timeout, bool answers) {
    return process.Call<int>(other, timeout, [answers](auto reply) {
      if (answers) reply(7);
    });
  }
};

TEST_CASE("a thread that waits lets others run, and goes on in the world's time") {
  Rig rig;
  auto signal = rig.process.MakeSignal();
  auto waits = rig.process.StartThread([&] {
    rig.Say(signal->WaitFor(absl::Milliseconds(100)) ? "set" : "late");
    rig.Say(signal->WaitFor(absl::Seconds(10)) ? "set" : "late");
  });
  auto sets = rig.process.StartThread([&] {
    rig.process.Sleep(300_ms);
    signal->Set();
    waits.reset();
    rig.Say("ended");
  });
  rig.world.RunUntil(WorldTime(1_s));
  CHECK(rig.said == std::vector<std::string>{"100 late", "300 set", "300 ended"});
  CHECK(rig.process.threads() == 0);
}

TEST_CASE("a stalled process does nothing, and its clock goes on") {
  Rig rig;
  auto ticks = rig.process.StartThread([&] {
    Periodic tick(
        absl::Milliseconds(100), [&] { rig.Say("tick"); }, rig.process);
    rig.process.Sleep(450_ms);
  });
  rig.world.After(150_ms, [&] {
    rig.process.Stall(1_s);
    rig.process.Deliver([&] { rig.Say("delivered"); });
  });
  rig.world.RunUntil(WorldTime(2_s));
  CHECK(rig.said == std::vector<std::string>{"0 tick", "100 tick", "1150 delivered", "1150 tick"});
  CHECK(rig.process.SteadyNow() == absl::Seconds(2));
}

TEST_CASE("a process that is held does nothing until it is let go; one that is killed meanwhile ends") {
  Rig rig;
  auto ticks = rig.process.StartThread([&] {
    Periodic tick(
        absl::Milliseconds(100), [&] { rig.Say("tick"); }, rig.process);
    rig.process.Sleep(850_ms);
  });
  rig.world.After(150_ms, [&] {
    rig.process.Hold(true);
    rig.process.Deliver([&] { rig.Say("delivered"); });
  });
  rig.world.After(650_ms, [&] { rig.process.Hold(false); });
  rig.world.After(700_ms, [&] { rig.process.Hold(true); });
  rig.world.After(900_ms, [&] { rig.process.Kill(); });
  rig.world.RunUntil(WorldTime(800_ms));
  CHECK(rig.process.threads() == 2);
  CHECK(rig.said == std::vector<std::string>{"0 tick", "100 tick", "650 delivered", "650 tick"});
  rig.world.RunUntil(WorldTime(2_s));
  CHECK(rig.process.threads() == 0);
}

TEST_CASE("a time of day that people set moves neither the steady clock nor a wait") {
  Rig rig;
  const absl::Time before = rig.process.WallNow();
  auto waits = rig.process.StartThread([&] {
    rig.process.Sleep(100_ms);
    rig.Say("slept");
  });
  rig.process.StepWallClock(-3600_s);
  rig.world.RunUntil(WorldTime(1_s));
  CHECK(rig.said == std::vector<std::string>{"100 slept"});
  CHECK(rig.process.SteadyNow() == absl::Seconds(1));
  CHECK(rig.process.WallNow() == before + absl::Seconds(1) - absl::Hours(1));
}

TEST_CASE("a call is answered, or given up in time, or ends with its process") {
  Rig rig;
  auto calls = rig.process.StartThread([&] {
    rig.Say(rig.Ask(1_s, true) == 7 ? "answer" : "none");
    rig.Say(rig.Ask(1_s, false) ? "answer" : "none");
    rig.Say(rig.Ask(60_s, false) ? "answer" : "none");
    rig.Say(rig.Ask(60_s, true) ? "answer" : "none");  // it reaches nobody
  });
  rig.world.RunUntil(WorldTime(5_s));
  CHECK(rig.said.size() == 2);
  rig.process.Kill();
  rig.world.RunUntil(WorldTime(5_s));
  REQUIRE(rig.said.size() == 4);
  CHECK(rig.said[2] == "5000 none");
  CHECK(rig.said[3] == "5000 none");
}

TEST_CASE("workers run so many jobs at once, and drop those that wait when they stop") {
  Rig rig;
  auto workers = rig.process.MakeWorkers(2);
  for (int i = 0; i < 5; ++i)
    workers->Post([&, i] {
      rig.process.Sleep(100_ms);
      rig.Say(std::to_string(i));
    });
  auto stops = rig.process.StartThread([&] {
    rig.process.Sleep(150_ms);
    workers->Stop();
    rig.Say("stopped");
  });
  rig.world.RunUntil(WorldTime(1_s));
  CHECK(rig.said == std::vector<std::string>{"100 0", "100 1", "200 2", "200 3", "200 stopped"});
}

TEST_CASE("what a thread throws comes out of the world, and ends the thread") {
  Rig rig;
  auto thread = rig.process.StartThread([] { throw Violation("seen"); });
  CHECK_THROWS_AS(rig.world.RunUntil(WorldTime(1_s)), Violation);
  CHECK(Fiber::Current() == nullptr);
}

}  // namespace
}  // namespace lunkeeper::fencing::sim
