#include "fencing/coordinator/node_budgets.h"

#include <catch2/catch.hpp>
#include <vector>

namespace lunkeeper {

TEST_CASE("a rate allows so many at once, and then so many a second") {
  RateLimit rate(3, 2);
  const auto now = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) CHECK(rate.Take(now));
  CHECK_FALSE(rate.Take(now));
  CHECK(rate.Take(now + std::chrono::milliseconds(500)));
  CHECK_FALSE(rate.Take(now + std::chrono::milliseconds(600)));
  // A long rest gives no more than at first.
  for (int i = 0; i < 3; ++i) CHECK(rate.Take(now + std::chrono::hours(1)));
  CHECK_FALSE(rate.Take(now + std::chrono::hours(1)));
}

TEST_CASE("a machine that calls too often is told to wait, and another is not") {
  NodeBudgets budgets({.calls_at_once = 2, .calls_per_second = 0.001});
  for (int i = 0; i < 2; ++i) CHECK(budgets.BeginCall("a").ok());
  CHECK(absl::IsResourceExhausted(budgets.BeginCall("a").status()));
  CHECK(budgets.BeginCall("b").ok());
}

TEST_CASE("a machine has so many calls at a time") {
  NodeBudgets budgets({.running_calls = 2});
  auto first = budgets.BeginCall("a"), second = budgets.BeginCall("a");
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(absl::IsResourceExhausted(budgets.BeginCall("a").status()));
  CHECK(budgets.BeginCall("b").ok());
  first->reset();
  CHECK(budgets.BeginCall("a").ok());
}

TEST_CASE("of a machine's streams the oldest one ends for the next") {
  NodeBudgets budgets({.streams = 2});
  std::vector<int> ended;
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 4; ++i)
    numbers.push_back(*budgets.BeginStream("a", [&ended, i] { ended.push_back(i); }));
  CHECK(ended == std::vector<int>{0, 1});
  CHECK(budgets.BeginStream("b", [&ended] { ended.push_back(100); }).ok());
  // A stream that has ended by itself makes room.
  budgets.EndStream("a", numbers[2]);
  CHECK(budgets.BeginStream("a", [] {}).ok());
  CHECK(ended == std::vector<int>{0, 1});
}

TEST_CASE("a machine that begins streams without end is told to wait, as if it had never ended one") {
  NodeBudgets budgets({.streams_at_once = 2, .streams_per_second = 0.001});
  for (int i = 0; i < 2; ++i) budgets.EndStream("a", *budgets.BeginStream("a", [] {}));
  CHECK(absl::IsResourceExhausted(budgets.BeginStream("a", [] {}).status()));
  CHECK(budgets.BeginStream("b", [] {}).ok());
}

TEST_CASE("a machine's heartbeats have one limit, over however many streams they come") {
  NodeBudgets budgets({.heartbeats_at_once = 2, .heartbeats_per_second = 0.001});
  for (int i = 0; i < 2; ++i) {
    CHECK(budgets.BeginStream("a", [] {}).ok());
    CHECK(budgets.TakeHeartbeat("a"));
  }
  CHECK_FALSE(budgets.TakeHeartbeat("a"));
  CHECK(budgets.TakeHeartbeat("b"));
}

TEST_CASE("a machine is few instances, each as often as it likes") {
  NodeBudgets budgets({.instances = 2});
  for (int i = 0; i < 10; ++i) {
    CHECK(budgets.NoteInstance("a", "a.1").ok());
    CHECK(budgets.NoteInstance("a", "a.2").ok());
  }
  CHECK(absl::IsResourceExhausted(budgets.NoteInstance("a", "a.3")));
  CHECK(budgets.NoteInstance("b", "b.3").ok());
}

}  // namespace lunkeeper
