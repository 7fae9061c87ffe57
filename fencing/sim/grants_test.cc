// What the coordinator and the nodes' end of it decide, in the worlds that show it soonest.

#include <catch2/catch.hpp>

#include "base/log.h"
#include "fencing/sim/simulate.h"

namespace lunkeeper::fencing::sim {
namespace {

// What the replicas log of thousands of faults nobody reads.
const bool kSilent = (SetUpLogging("error", LogFormat::kText), true);

constexpr uint64_t kEvery = 16;  // simulate.cc has a trial of its own for each of these remainders

void RunSeeds(uint64_t first, uint64_t last) {
  for (uint64_t seed = first; seed <= last; seed += kEvery) {
    INFO("./dev sim --seeds 1 --seed " << seed);
    CHECK(Simulate(seed, {}).violation == "");
  }
}

TEST_CASE("a node gets no volume that none of its pods uses, also when its own node dies") {
  RunSeeds(2, 66);
}

TEST_CASE("a replica that does not reach an array keeps no node from the one that does") {
  RunSeeds(12, 396);
}

}  // namespace
}  // namespace lunkeeper::fencing::sim
