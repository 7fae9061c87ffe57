// `./dev sim`: runs seeds, says how many and how fast; a failing one prints its trace and how to replay it.

#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "fencing/sim/faults.h"
#include "fencing/sim/simulate.h"

namespace lunkeeper::fencing::sim {
namespace {

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

int Explain(uint64_t seed, Options options, const Result& result) {
  options.trace = true;
  const auto again = Simulate(seed, options);
  std::printf("%s\nseed %llu: %s\n", again.trace.c_str(), static_cast<unsigned long long>(seed),
              result.violation.c_str());
  if (again.violation != result.violation)
    std::printf("and it does not replay: %s\n", again.violation.c_str());
  std::printf("again: ./dev sim --seeds 1 --seed %llu\n", static_cast<unsigned long long>(seed));
  return 1;
}

int RunSeeds(uint64_t first, uint64_t count, const Options& options, bool all) {
  const auto begin = CpuSeconds();
  uint64_t failovers = 0, events = 0, failed = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const auto result = Simulate(seed, options);
    failovers += static_cast<uint64_t>(result.failovers);
    events += result.events;
    if (!result.ok() && !all) return Explain(seed, options, result);
    if (!result.ok()) {
      ++failed;
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), result.violation.c_str());
    }
    if (options.trace) std::printf("%s", result.trace.c_str());
  }
  const auto took = CpuSeconds() - begin;
  std::printf(
      "%llu seeds, %llu violations; %llu pods moved, %llu events, %.1f s of CPU: %.0f moves/s, %.0f "
      "seeds/s\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(failed),
      static_cast<unsigned long long>(failovers), static_cast<unsigned long long>(events), took,
      static_cast<double>(failovers) / took, static_cast<double>(count) / took);
  return failed == 0 ? 0 : 1;
}

// Each mutant by itself, with the seed that catches it.
int TryMutants(uint64_t seeds) {
  size_t missed = 0;
  for (const auto& [mutant, name] : AllMutants()) {
    const auto seed = SeedThatCatches(mutant, seeds);
    if (!seed) ++missed;
    std::printf("%-26s %s\n", name.c_str(), seed ? ("seed " + std::to_string(*seed)).c_str() : "NOT CAUGHT");
    std::fflush(stdout);
  }
  std::printf("%zu mutants, %zu not caught within %llu seeds\n", AllMutants().size(), missed,
              static_cast<unsigned long long>(seeds));
  return missed == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "The failover simulator: whole clusters in virtual time, faults from a seed, invariants at each step.");
  uint64_t count = 4000, first = 1;
  Options options;
  std::vector<std::string> faults, mutants;
  app.add_option("--seeds", count, "How many seeds to run");
  app.add_option("--seed", first, "The first of them");
  app.add_option("--faults", faults, "Only these faults")
      ->delimiter(',')
      ->check(CLI::IsMember(Faults::Names()));
  std::vector<std::string> names;
  for (const auto& [mutant, name] : AllMutants()) names.push_back(name);
  app.add_option("--mutant", mutants, "Deliberate mistakes to make")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_flag("--trace", options.trace, "Print what happens");
  bool all = false, each_mutant = false;
  app.add_flag("--all", all, "Go on after a violation, and print a line for each");
  app.add_flag("--mutants", each_mutant, "Make each deliberate mistake by itself: which seed catches it?");
  CLI11_PARSE(app, argc, argv);
  options.faults.insert(faults.begin(), faults.end());
  for (const auto& [mutant, name] : AllMutants())
    if (std::find(mutants.begin(), mutants.end(), name) != mutants.end())
      options.mutants.set(static_cast<size_t>(mutant));
  if (!options.trace) SetUpLogging("error", LogFormat::kText);
  if (each_mutant) return TryMutants(count);
  return RunSeeds(first, count, options, all);
}

}  // namespace
}  // namespace lunkeeper::fencing::sim

// The check of lock order costs a thirtieth of the time. The simulator's test has it.
int main(int argc, char** argv) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return lunkeeper::fencing::sim::Main(argc, argv);
}
