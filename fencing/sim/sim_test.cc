// The simulator as a test: seeds without a violation, and exact replay. mutants_test.cc proves that it can
// fail.

#include <catch2/catch.hpp>

#include "base/log.h"
#include "fencing/sim/simulate.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr uint64_t kSeeds = 2000;

// What the replicas log of thousands of faults nobody reads.
const bool kQuiet = (SetUpLogging("error", LogFormat::kText), true);

TEST_CASE("no seed violates an invariant, and every world gets well again") {
  int moves = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto result = Simulate(seed, {});
    INFO("./dev sim --seeds 1 --seed " << seed);
    REQUIRE(result.violation == "");
    moves += result.failovers;
  }
  // A simulator in which nothing fails over proves nothing.
  CHECK(moves > static_cast<int>(kSeeds));
}

TEST_CASE("a seed replays exactly") {
  Options options;
  options.trace = true;
  for (const uint64_t seed : {1, 7, 42}) {
    const auto first = Simulate(seed, options), second = Simulate(seed, options);
    CHECK(first.trace == second.trace);
    CHECK(first.events == second.events);
    CHECK(first.trace.size() > 100);
  }
}

}  // namespace
}  // namespace lunkeeper::fencing::sim
