// The simulator as a test: seeds without a violation, exact replay, and the proof that it can fail.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "base/log.h"
#include "fencing/sim/simulate.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr uint64_t kSeeds = 2000, kSeedsToCatchAMutant = 4000;

// Mistakes that show in one seed of five hundred or more are looked for where their faults meet.
const std::map<Mutant, std::set<std::string>>& FaultsThatShow() {
  static const std::map<Mutant, std::set<std::string>> kFaults = {
      {Mutant::kFenceWithoutDrain, {"slow-array", "cut-all", "fence-by-hand", "hang"}},
      {Mutant::kUnfenceAnyGeneration, {"fence-by-hand", "power-off", "out-of-service"}},
      {Mutant::kReplayWithoutReset, {"slow-array", "array-restart", "cut-portal"}},
      {Mutant::kDeleteAnyUid, {"stall-at-step", "force-delete", "power-off", "recreate-node"}}};
  return kFaults;
}

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

TEST_CASE("every deliberate mistake is caught") {
  REQUIRE(AllMutants().size() >= 20);
  for (const auto& [mutant, name] : AllMutants()) {
    Options options;
    options.mutants.set(static_cast<size_t>(mutant));
    if (const auto faults = FaultsThatShow().find(mutant); faults != FaultsThatShow().end())
      options.faults = faults->second;
    uint64_t seed = 1;
    while (seed <= kSeedsToCatchAMutant && Simulate(seed, options).ok()) ++seed;
    INFO(name << " is not caught within " << kSeedsToCatchAMutant << " seeds");
    CHECK(seed <= kSeedsToCatchAMutant);
  }
}

}  // namespace
}  // namespace lunkeeper::fencing::sim
