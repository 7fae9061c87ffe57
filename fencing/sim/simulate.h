#pragma once
// One seed, one run: a cluster is built, faults composed from the seed strike it, everything is mended, and
// it has to become well by itself. Deterministic: the same seed and options give the same run.

#include <optional>
#include <set>
#include <string>

#include "fencing/sim/mutants.h"

namespace lunkeeper::fencing::sim {

struct Options {
  Mutants mutants;
  std::set<std::string> faults;  // only these; empty: all
  bool trace = false;
};

struct Result {
  std::string violation;  // empty: none
  std::string trace;
  int failovers = 0;
  uint64_t events = 0;
  bool ok() const { return violation.empty(); }
};

Result Simulate(uint64_t seed, const Options& options);

// The first of the seeds 1 to `seeds` in which `mutant` is a violation; nullopt if none is.
std::optional<uint64_t> SeedThatCatches(Mutant mutant, uint64_t seeds);

}  // namespace lunkeeper::fencing::sim
