// Calm at first, so that a world that does not even start can be distinguished from one that does not
// recover; then a minute of faults; then all of them are mended, and the world has some minutes to be well by
// itself.

#include "fencing/sim/simulate.h"

#include <algorithm>
#include <stdexcept>

#include "fencing/core/trace.h"
#include "fencing/sim/api.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/faults.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr WorldTime kCalm(15_s), kTrouble(75_s);  // nothing strikes before the first, or after the second
constexpr Span kRecoveryTimeout = 400_s, kLook = 2_s, kPersonLooks = 60_s, kYield = 25_s;
constexpr Span kPoisonSpreads = 180_s;
// From a node's death until its workloads write elsewhere: by itself, and beside a replica that has just
// started. And then what looks at an array take that is slow: three of them tell for sure.
constexpr Span kFailover = 6_s, kFailoverBesideYoung = 8_s;
// A replica that is cut off from an array, or from a node, may be asked first, and says so only after a
// while.
constexpr Span kFailoverBesideCut = 12_s;
constexpr int kLooks = 4;
constexpr Span kTakesOver = 1500_ms;  // from a leader's orderly end on
constexpr Span kShutDown = 400_ms;    // from the end of its streams to that of its kernel
// A node is well again, and open to pods, when it has shown for a while that nothing fenced is left on it.
constexpr Span kReopened = 40_s;
// From a cut to Kubernetes' word, then the grace, and a failover that begins anew under another leader.
constexpr Span kKubernetesSays = 60_s, kFailoverByAnother = 30_s;

void AddWorkloads(World& world) {
  auto& random = world.random();
  int volume = 0;
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
    world.api->AddWorkload(workload);
  }
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
  for (int i = 0; i < 2; ++i) {
    const ClockError clock{random.Between(1_s, 100_s), static_cast<int>(random.Between(-10, 10))};
    world.replicas.push_back(std::make_unique<Replica>(world, static_cast<size_t>(i), clock));
  }
  for (int i = 1; i <= 5; ++i) {
    const NodeName name("n" + std::to_string(i));
    world.machines.push_back(std::make_unique<Machine>(world, name, 1));
    world.api->AddNode(name, world.machines.back()->id());
  }
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
    if (why.empty()) return;
  }
  throw Violation(FormatSeconds(world.now().since_start()) + "  the world does not get well: " + why);
}

// Restarts one that does not lead. Nodes find it only later.
void RestartFollower(World& world) {
  for (auto& replica : world.replicas) {
    if (replica->Leads()) continue;
    replica->Crash(200_ms);
    return world.RunUntil(world.now() + world.random().Between(500_ms, 6_s));
  }
}

Machine& MachineOfPod(World& world, const Workload& workload) {
  const auto& node = world.api->FindPodOf(workload)->node;
  for (auto& machine : world.machines)
    if (machine->name() == node) return *machine;
  throw Violation(workload.id.value() + " runs nowhere");
}

std::optional<WorldTime> LastWrite(const World& world, const Workload& workload) {
  std::optional<WorldTime> wrote;
  for (const auto& machine : world.machines) wrote = std::max(wrote, machine->WroteAt(workload));
  return wrote;
}

// What happens beside a plain failover, which has to be in time all the same.
struct Beside {
  bool cut = false, young = false, rolled_out = false, in_order = false, finalizers = false;
};

Beside DrawBeside(World& world, bool cut) {
  auto& random = world.random();
  Beside beside{.cut = cut, .young = random.Percent(50)};
  beside.rolled_out = !beside.young && !cut && random.Percent(50);
  beside.in_order = random.Percent(30);
  beside.finalizers = random.Percent(25);
  return beside;
}

// It gives the lease up, so the other one need not wait until it has run out.
void RollOutLeader(World& world) {
  for (auto& replica : world.replicas) {
    if (!replica->Leads()) continue;
    replica->Replace(world.random().Between(3_s, 6_s));
    break;
  }
  world.RunUntil(world.now() + kTakesOver);
  if (std::ranges::none_of(world.replicas, [](const auto& replica) { return replica->Leads(); }))
    throw Violation(FormatSeconds(world.now().since_start()) + "  nobody leads after an orderly end");
}

Span TimeOfFailover(const World& world, const Beside& beside) {
  const bool other_is_new = beside.young || beside.rolled_out;
  const Span least = beside.cut ? kFailoverBesideCut : other_is_new ? kFailoverBesideYoung : kFailover;
  Span slowest;
  for (const auto& array : world.arrays) slowest = std::max(slowest, array->longest_look());
  return least + (world.settings.silence - Settings().silence) + kLooks * slowest +
         (beside.in_order ? kShutDown : Span());
}

// A pod that stays, deleted, keeps its StatefulSet from making another one, and keeps nothing else.
void RequireReopened(World& world, const Machine& victim, const std::vector<Workload>& moved) {
  if (std::ranges::any_of(moved, &Workload::NamesItsPod)) return;
  world.RunUntil(world.now() + kReopened);
  if (!world.api->nodes().at(victim.name()).taint.empty())
    throw Violation(FormatSeconds(world.now().since_start()) + "  " + victim.id().value() +
                    " is still tainted, though only finalizers are left");
}

// One in eight seeds has a single death of a node, and holds the failover to its time.
void RunPlain(World& world, Faults& faults, bool beside_cut) {
  const Beside beside = DrawBeside(world, beside_cut);
  if (beside.young) RestartFollower(world);
  const auto& workloads = world.api->workloads();
  auto& victim = MachineOfPod(world, workloads[static_cast<size_t>(world.random().Between(0, 4))]);
  std::vector<Workload> moved;
  for (const auto& workload : workloads)
    if (workload.Protected() && &MachineOfPod(world, workload) == &victim) moved.push_back(workload);
  if (beside.rolled_out) RollOutLeader(world);
  world.api->finalizers += beside.finalizers ? 1 : 0;
  world.checker->Sick(victim.id(), Cause::kDead, true);
  beside.in_order ? victim.ShutDown() : victim.PowerOff();
  world.Trace((beside.in_order ? "shutdown of " : "power-off of ") + victim.id().value());
  const auto off = world.now();
  world.RunUntil(off + TimeOfFailover(world, beside));
  for (const auto& workload : moved)
    if (LastWrite(world, workload) <= off && !(beside.finalizers && workload.NamesItsPod()))
      throw Violation(FormatSeconds(world.now().since_start()) + "  " + workload.id.value() +
                      " was not moved in time");
  world.RunUntil(world.now() + world.random().Between(0_s, 20_s));
  world.checker->Sick(victim.id(), Cause::kDead, false);
  victim.PowerOn();
  if (beside.finalizers) RequireReopened(world, victim, moved);
  world.api->finalizers -= beside.finalizers ? 1 : 0;
  faults.HealAll();
}

// One in sixteen has a leader that is cut off from an array, where there are two, or else from some nodes,
// and stays so: another one has to lead, and then a node dies.
void RunOutseen(World& world, Faults& faults) {
  Replica* leader = nullptr;
  for (auto& replica : world.replicas)
    if (replica->Leads()) leader = replica.get();
  if (!leader) throw Violation("nobody leads a world at rest");
  const auto cut = [&](Endpoint other) {
    world.Cut(leader->endpoint(), other);
    world.Cut(other, leader->endpoint());
  };
  world.RunUntil(world.now() + world.random().Between(0_s, 10_s));
  if (world.arrays.size() > 1) {
    cut(world.random().Pick(world.arrays)->endpoint());
  } else {
    for (int count = static_cast<int>(world.random().Between(1, 3)); count > 0; --count)
      cut(world.machines[static_cast<size_t>(count)]->endpoint());
  }
  world.Trace(leader->name() + " is cut off");
  world.RunUntil(world.now() + kYield);
  if (leader->Leads()) throw Violation(leader->name() + " still leads, although another one sees more");
  RunPlain(world, faults, true);
}

// Where Kubernetes is trusted, a node that it alone has lost is failed over although its pods write on; a
// leader dies or stalls meanwhile. The checker sees that no write is lost by that.
void RunTrusting(World& world, Faults& faults) {
  auto& random = world.random();
  const auto workload = world.api->workloads()[static_cast<size_t>(random.Between(0, 4))];
  auto& victim = MachineOfPod(world, workload);
  const auto node = victim.endpoint(), api = world.api->endpoint();
  world.checker->Sick(victim.id(), Cause::kApi, true);
  world.Cut(node, api);
  world.Cut(api, node);
  world.Trace(victim.id().value() + " is cut off from the API server");
  auto limit = kKubernetesSays + world.settings.partition_grace + kFailoverByAnother;
  const bool stalls = random.Percent(50);
  for (auto& replica : world.replicas)
    if (replica->Leads()) replica->FailAtAction(static_cast<int>(random.Between(1, 8)), stalls);
  if (stalls) limit = limit + world.settings.partition_grace;  // it waits for all of that anew
  world.RunUntil(world.now() + limit);
  if (&MachineOfPod(world, workload) == &victim)
    throw Violation(workload.id.value() + " stays on a node that Kubernetes has lost for long");
  world.Mend(node, api);
  world.Mend(api, node);
  world.checker->Sick(victim.id(), Cause::kApi, false);
  faults.HealAll();
}

void PowerOffNode(World& world, const NodeName& name) {
  for (auto& machine : world.machines) {
    if (machine->name() != name) continue;
    world.checker->Sick(machine->id(), Cause::kDead, true);
    machine->PowerOff();
  }
}

// One in sixteen has a volume that kills each machine which mounts it: it has to stop at the second, also
// where a leader dies meanwhile, and where the failover of another death took it there.
void RunPoisoned(World& world, Faults& faults) {
  auto& random = world.random();
  const auto workload = world.api->workloads()[static_cast<size_t>(random.Between(0, 4))];
  // Where the next pod is there before the last one ends, the volume may just stay.
  const bool had_it_long = !workload.NamesItsPod() || random.Percent(50);
  if (had_it_long) world.RunUntil(world.now() + 2 * Settings().mount_death);
  world.checker->Poison({*workload.volumes.begin()->second.begin()});
  for (auto& replica : world.replicas) {
    if (!replica->Leads()) continue;
    world.After(random.Between(1_s, 60_s),
                [&leader = *replica, by_stall = random.Percent(30),
                 at = static_cast<int>(random.Between(1, 6))] { leader.FailAtAction(at, by_stall); });
  }
  const Pod pod = *world.api->FindPodOf(workload);
  if (had_it_long) {
    PowerOffNode(world, pod.node);  // another fault takes the volume to the first that dies of it
  } else {
    world.api->DeletePodAsOperator(pod.id);  // it starts anew, and mounts the volume
  }
  world.RunUntil(world.now() + kPoisonSpreads);
  if (world.checker->died_of_poison() < 2) throw Violation("the poisoned volume was not moved at all");
  world.checker->Poison({});
  for (auto& machine : world.machines) {
    if (machine->powered()) continue;
    world.checker->Sick(machine->id(), Cause::kDead, false);
    machine->PowerOn();
  }
  world.api->AllowVolumesAsOperator();
  faults.HealAll();
}

void Run(World& world, uint64_t seed, const Options& options) {
  const bool trusting = seed % 16 == 10 && options.faults.empty();
  Build(world, trusting);
  world.RunUntil(kCalm);
  if (auto why = world.checker->Unsettled(); !why.empty())
    throw Violation(FormatSeconds(world.now().since_start()) + "  the world did not start: " + why);
  Faults faults(world);
  if (seed % 8 == 0 && options.faults.empty()) {
    RunPlain(world, faults, false);
  } else if (seed % 16 == 12 && options.faults.empty()) {
    RunOutseen(world, faults);
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
  for (auto& replica : world.replicas) replica->End();
  for (auto& machine : world.machines) machine->End();
  for (int rounds = 0; rounds < 1000; ++rounds) {
    world.RunUntil(world.now() + 1_s);
    const auto ended = [](const auto& each) { return each->ended(); };
    if (std::ranges::all_of(world.replicas, ended) && std::ranges::all_of(world.machines, ended)) return;
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
