// The proof that the simulator can fail: eight of its mutants, others with each commit (LUNKEEPER_COMMIT).
// `./dev sim --mutants` tries them all.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>
#include <string_view>

#include "base/log.h"
#include "fencing/sim/simulate.h"

namespace lunkeeper::fencing::sim {
namespace {

// What the replicas log of thousands of faults nobody reads.
const bool kQuiet = (SetUpLogging("error", LogFormat::kText), true);

constexpr size_t kPicked = 8;
constexpr uint64_t kSeeds = 4000;

// The order of C++'s own generator, so that a commit gets the same mutants everywhere.
std::vector<std::pair<Mutant, std::string>> PickBy(std::string_view commit) {
  auto left = AllMutants();
  std::seed_seq seeds(commit.begin(), commit.end());
  std::mt19937 generator(seeds);
  while (left.size() > kPicked) left.erase(left.begin() + static_cast<long>(generator() % left.size()));
  return left;
}

TEST_CASE("deliberate mistakes are caught") {
  const char* commit = std::getenv("LUNKEEPER_COMMIT");
  const auto picked = PickBy(commit == nullptr ? "" : commit);
  REQUIRE(AllMutants().size() >= 20);
  REQUIRE(picked.size() == kPicked);
  CHECK(picked != PickBy("another commit"));
  for (const auto& [mutant, name] : picked) {
    INFO(name << " is not caught within " << kSeeds << " seeds");
    CHECK(SeedThatCatches(mutant, kSeeds));
  }
}

}  // namespace
}  // namespace lunkeeper::fencing::sim
