// Calm at first, so that a world that does not even start can be distinguished from one that does not
// recover; then a minute of faults; then all of them are mended, and the world has some minutes to be well by
// itself.

#include "fencing/sim/simulate.h"

#include <algorithm>
#include <stdexcept>

#include "fencing/core/trace.h"
#include "fencing/sim/api.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/deployment.h"
#include "fencing/sim/faults.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"
#include "fencing/sim/trials.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr WorldTime kCalm(15_s), kTrouble(75_s);  // nothing strikes before the first, or after the second
constexpr Span kRecoveryTimeout = 400_s, kLook = 2_s, kPersonLooks = 60_s;

// One volume for three workloads: the first has others of its own, the last may have opted out.
void AddSharers(World& world, std::vector<Workload>& workloads) {
  auto& random = world.random();
  ArrayModel& array = *random.Pick(world.arrays);
  const VolumeId volume(array.id().value() + "-v00000000000000ff");
  array.MakeShared(volume);
  world.checker->MakeShared(volume);
  for (int i = 7; i <= 8; ++i) {
    Workload& workload = workloads.emplace_back();
    workload.id = PodId("default/w" + std::to_string(i));
    workload.owner_kind = "ReplicaSet";
  }
  if (random.Percent(20)) workloads.back().policy = FailoverPolicy::kNever;
  for (const size_t sharer : {0, 7, 8}) workloads[sharer].volumes[array.id()].insert(volume);
}

void AddWorkloads(World& world) {
  auto& random = world.random();
  int volume = 0;
  std::vector<Workload> workloads;
  const char* kOwners[] = {"StatefulSet", "ReplicaSet",  "Job", "StatefulSet",
                           "ReplicaSet",  "StatefulSet", "Job"};
  for (int i = 0; i < 7; ++i) {
    Workload workload;
    workload.id = PodId("default/w" + std::to_string(i));
    workload.owner_kind = kOwners[i];
    workload.think = random.Percent(30) ? 5_s : 250_ms;
    if (i == 5) workload.policy = FailoverPolicy::kNever;
    workload.foreign = i == 6;
    workload.awaits_failure = i == 2;
    for (int n = i == 0 ? 2 : 1; n > 0; --n) {
      const ArrayId array = random.Pick(world.arrays)->id();
      workload.volumes[array].insert(
          VolumeId(array.value() + "-v000000000000000" + std::to_string(++volume)));
    }
    workloads.push_back(workload);
  }
  if (random.Percent(50)) AddSharers(world, workloads);
  for (const auto& workload : workloads) world.api->AddWorkload(workload);
}

// One draw: what was drawn after it in the past stays as it was.
void ChoosePolicies(World& world, bool trusting) {
  const auto dice = world.random().Between(1, 100);
  world.settings.partitioned = trusting || dice <= 25 ? Partitioned::kTrustKubernetes
                               : dice <= 75           ? Partitioned::kFence
                                                      : Partitioned::kHold;
  world.settings.crash_loops = dice % 3 == 0   ? CrashLoops::kNever
                               : dice % 3 == 1 ? CrashLoops::kAfterOutage
                                               : CrashLoops::kAlways;
}

void Build(World& world, bool trusting) {
  auto& random = world.random();
  world.checker = std::make_unique<Checker>(world);
  world.api = std::make_unique<Api>(world);
  if (random.Percent(25)) world.settings.silence = 4_s;
  if (random.Percent(25)) world.settings.graceful_deadline = 5_s;
  ChoosePolicies(world, trusting);
  if (random.Percent(50)) world.settings.plugin_not_ready = 10_s;  // no shorter one can be set
  world.api->registers_tainted = random.Percent(25);
  const auto arrays = random.Between(1, 2);
  for (int i = 1; i <= arrays; ++i)
    world.arrays.push_back(std::make_unique<ArrayModel>(world, ArrayId("a" + std::to_string(i))));
  // One array may be slow to look at for good.
  if (random.Percent(20)) {
    const auto most = random.Between(500_ms, 4500_ms);
    random.Pick(world.arrays)->set_steady_looks(random.Percent(50) ? most : most / 4, most);
  }
  for (int i = 1; i <= 5; ++i) {
    const NodeName name("n" + std::to_string(i));
    world.machines.push_back(std::make_unique<Machine>(world, name, 1));
    world.api->AddNode(name, world.machines.back()->id());
  }
  world.deployment = std::make_unique<Deployment>(world);
  AddWorkloads(world);
}

// What people closed and have no record of any more, as the store went back in time, or the array was away
// when they opened it: they see it in the status, and open it at the array.
void OpenMachinesAsOperator(World& world) {
  world.api->AllowVolumesAsOperator();
  for (auto& array : world.arrays)
    for (const auto& machine : world.machines) array->UnfenceAsOperator(machine->name());
  world.api->EndAllAsOperator();
}

// After `start` the world is whole; it has until its timeout ends to be well.
void AwaitWellness(World& world, Span timeout) {
  const auto end = world.now() + timeout;
  std::string why;
  auto look_at = world.now() + kPersonLooks;
  while (world.now() < end) {
    world.RunUntil(world.now() + kLook);
    if (world.now() >= look_at) {
      OpenMachinesAsOperator(world);
      look_at = world.now() + kPersonLooks;
    }
    why = world.checker->Unsettled();
    if (why.empty()) why = world.deployment->Unsettled();
    if (why.empty()) return;
  }
  throw Violation(FormatSeconds(world.now().since_start()) + "  the world does not get well: " + why);
}

void Run(World& world, uint64_t seed, const Options& options) {
  const bool trusting = seed % 16 == 10 && options.faults.empty();
  Build(world, trusting);
  world.RunUntil(kCalm);
  if (auto why = world.checker->Unsettled(); !why.empty())
    throw Violation(FormatSeconds(world.now().since_start()) + "  the world did not start: " + why);
  Faults faults(world);
  // One in eight, and then one in sixteen of each.
  if (seed % 8 == 0 && options.faults.empty()) {
    RunPlain(world, faults, false);
  } else if (seed % 16 == 12 && options.faults.empty()) {
    RunOutseen(world, faults);
  } else if (seed % 16 == 2 && options.faults.empty()) {
    RunStrangers(world, faults);
  } else if (seed % 16 == 6 && options.faults.empty()) {
    RunSlowRecord(world, faults);
  } else if (seed % 16 == 4 && options.faults.empty()) {
    RunPoisoned(world, faults);
  } else if (trusting) {
    RunTrusting(world, faults);
  } else {
    faults.Compose(static_cast<int>(world.random().Between(2, 12)), kCalm, kTrouble, options.faults);
    world.RunUntil(kTrouble);
    faults.HealAll();
    world.Trace("everything is mended");
  }
  world.RunUntil(world.now() + 35_s);  // late replies and delayed restores are over
  faults.HealAll();
  world.api->EndAllAsOperator();
  AwaitWellness(world, kRecoveryTimeout);
}

// The product's threads have to end, whatever became of the world.
void EndProcesses(World& world) {
  world.End();
  world.deployment->End();
  for (auto& machine : world.machines) machine->End();
  for (int rounds = 0; rounds < 1000; ++rounds) {
    world.RunUntil(world.now() + 1_s);
    const auto ended = [](const auto& each) { return each->ended(); };
    if (world.deployment->ended() && std::ranges::all_of(world.machines, ended)) return;
  }
  throw std::logic_error("a process's threads do not end");
}

}  // namespace

Result Simulate(uint64_t seed, const Options& options) {
  World world(seed, options.mutants, options.trace);
  Result result;
  try {
    Run(world, seed, options);
  } catch (const Violation& violation) {
    result.violation = violation.what();
  }
  EndProcesses(world);
  result.failovers = world.checker->failovers();
  result.events = world.events();
  result.trace = world.TakeTrace();
  return result;
}

// Mistakes that show in one seed of hundreds are looked for where their faults meet.
static const std::map<Mutant, std::set<std::string>>& FaultsThatShow() {
  static const std::map<Mutant, std::set<std::string>> kFaults = {
      {Mutant::kFenceWithoutDrain, {"slow-array", "cut-all", "fence-by-hand", "hang"}},
      {Mutant::kUnfenceAnyGeneration, {"fence-by-hand", "power-off", "out-of-service"}},
      {Mutant::kProbeForged, {"plugin-hang"}},
      {Mutant::kBlockedIsSilent, {"probes-blocked"}},
      {Mutant::kDrainGivesUp, {"endless-commands", "power-off", "cut-all"}},
      {Mutant::kPauseIgnored, {"paused", "power-off"}},
      {Mutant::kSteadyClockSteps, {"clock-step", "power-off"}},
      {Mutant::kCompactionUnseen, {"compaction", "power-off", "api-down"}},
      {Mutant::kBudgetIgnored, {"rack-off", "rack-cut"}},
      {Mutant::kReplayWithoutReset, {"slow-array", "array-restart", "cut-portal"}},
      {Mutant::kDeleteAnyUid, {"stall-at-step", "force-delete", "power-off", "recreate-node"}}};
  return kFaults;
}

std::optional<uint64_t> SeedThatCatches(Mutant mutant, uint64_t seeds) {
  Options options;
  if (const auto faults = FaultsThatShow().find(mutant); faults != FaultsThatShow().end())
    options.faults = faults->second;
  options.mutants.set(static_cast<size_t>(mutant));
  for (uint64_t seed = 1; seed <= seeds; ++seed)
    if (!Simulate(seed, options).ok()) return seed;
  return std::nullopt;
}

}  // namespace lunkeeper::fencing::sim
