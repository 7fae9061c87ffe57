// A machine's share of an array's time.
#include "devices/array/tgt/machine_shares.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace lunkeeper {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

const ClusterId kCluster("c1");
const NodeId kA("node-a.1"), kSameMachine("node-a.2"), kB("node-b.1");
constexpr ShareLimits kEndless{.at_once = std::chrono::hours(1), .held = std::chrono::hours(1)};

MachineShares::Clock::time_point In(MachineShares::Clock::duration time) {
  return MachineShares::Clock::now() + time;
}

}  // namespace

TEST_CASE("a machine has a few turns at a time, whatever it calls itself, and others have theirs") {
  MachineShares shares(kEndless);
  std::vector<MachineShares::Turn> turns;
  for (int i = 0; i < 4; ++i) turns.push_back(shares.TakeTurn(kCluster, i % 2 == 0 ? kA : kSameMachine));
  CHECK(turns.back() != nullptr);
  CHECK(shares.TakeTurn(kCluster, kA) == nullptr);
  CHECK(shares.TakeTurn(kCluster, kSameMachine) == nullptr);
  CHECK(shares.TakeTurn(kCluster, kB) != nullptr);
  CHECK(shares.TakeTurn(ClusterId("c2"), kA) != nullptr);
  turns.pop_back();
  CHECK(shares.TakeTurn(kCluster, kA) != nullptr);
}

TEST_CASE("a call waits for the end of another turn of its machine") {
  MachineShares shares(kEndless);
  std::vector<MachineShares::Turn> turns;
  for (int i = 0; i < 4; ++i) turns.push_back(shares.TakeTurn(kCluster, kA));
  shares.AwaitTurn(kCluster, kA, In(milliseconds(20)));
  CHECK(shares.TakeTurn(kCluster, kA) == nullptr);
  std::thread waits([&] { shares.AwaitTurn(kCluster, kA, In(std::chrono::hours(1))); });
  turns.clear();
  waits.join();
  CHECK(shares.TakeTurn(kCluster, kA) != nullptr);
}

// As for an image that does not answer: the machine's other volumes do not wait for it.
TEST_CASE("a turn that takes long gives its place to the next one") {
  MachineShares shares({.at_a_time = 1, .held = milliseconds(30)});
  const auto slow = shares.TakeTurn(kCluster, kA);
  CHECK(shares.TakeTurn(kCluster, kA) == nullptr);
  shares.AwaitTurn(kCluster, kA, In(seconds(30)));
  CHECK(shares.TakeTurn(kCluster, kA) != nullptr);
}

TEST_CASE("a machine whose credit is used up gets its share of the time, and no more") {
  MachineShares shares({.at_once = milliseconds(20), .share = 0.1, .paid = milliseconds(40)});
  auto turn = shares.TakeTurn(kCluster, kA);
  std::this_thread::sleep_for(milliseconds(40));
  turn.reset();  // costs 40 ms, of which 20 are left to pay
  const auto spent = MachineShares::Clock::now();
  CHECK(shares.TakeTurn(kCluster, kA) == nullptr);
  CHECK(shares.TakeTurn(kCluster, kB) != nullptr);
  shares.AwaitTurn(kCluster, kA, In(seconds(30)));
  CHECK(MachineShares::Clock::now() - spent > milliseconds(100));
  CHECK(shares.TakeTurn(kCluster, kA) != nullptr);
}

}  // namespace lunkeeper
