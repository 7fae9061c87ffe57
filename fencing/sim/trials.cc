// Each builds up what is to meet, lets one thing happen, and throws a Violation if what has to follow did not
// come in time.

#include "fencing/sim/trials.h"

#include <algorithm>
#include <vector>

#include "fencing/core/trace.h"
#include "fencing/sim/api.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/cuts.h"
#include "fencing/sim/deployment.h"
#include "fencing/sim/faults.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kYield = 25_s;
constexpr int kStrangers = 6;
constexpr Span kPoisonSpreads = 180_s;
// From a node's death until its workloads write elsewhere: by itself, and beside a replica that has just
// started. And then what looks at an array take that is slow: three of them tell for sure.
constexpr Span kFailover = 6_s, kFailoverBesideYoung = 8_s;
// The leader's own: another replica leads when the lease has run out. One that has just started waits for one
// lease more, and it may never have met the node.
constexpr Span kFailoverByAnother = 6_s, kFailoverByYoung = 42_s;
// A replica that is cut off from an array, or from a node, may be asked first, and says so only after a
// while.
constexpr Span kFailoverBesideCut = 12_s;
constexpr int kLooks = 4;
constexpr Span kTakesOver = 1500_ms;  // from a leader's orderly end on
constexpr Span kShutDown = 400_ms;    // from the end of its streams to that of its kernel
// A node is well again, and open to pods, when it has shown for a while that nothing fenced is left on it.
constexpr Span kReopened = 40_s;
// From a cut to Kubernetes' word, then the grace, and a failover that begins anew under another leader.
constexpr Span kKubernetesSays = 60_s, kFailoverAnew = 30_s;
// Of a node that is cut off, however slow looks are; and from the NodeFence until the array is asked.
constexpr Span kDecides = 60_s, kFences = 700_ms;

// Restarts one that does not lead. Nodes find it only later.
void RestartFollower(World& world) {
  for (auto& replica : world.replicas) {
    if (replica->Leads()) continue;
    replica->Crash(200_ms);
    return world.RunUntil(world.now() + world.random().Between(500_ms, 6_s));
  }
}

// One that it does not share, if it has any.
VolumeId OwnVolume(const World& world, const Workload& workload) {
  VolumeId own;
  for (const auto& [array, volumes] : workload.volumes)
    for (const auto& volume : volumes)
      if (own.empty() || !world.checker->IsShared(volume)) own = volume;
  return own;
}

// One that a failover moves, with a volume of its own.
const Workload& PickWorkload(World& world) {
  std::vector<const Workload*> fit;
  for (const auto& workload : world.api->workloads())
    if (workload.Protected() && !world.checker->IsTied(workload) &&
        !world.checker->IsShared(OwnVolume(world, workload)))
      fit.push_back(&workload);
  return *world.random().Pick(fit);
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
  bool leader = false;  // it ran there
};

Beside DrawBeside(World& world, bool cut) {
  auto& random = world.random();
  Beside beside{.cut = cut, .young = random.Percent(50)};
  beside.rolled_out = !beside.young && !cut && random.Percent(50);
  beside.in_order = random.Percent(30);
  beside.finalizers = random.Percent(25);
  beside.leader = !cut && random.Percent(35);
  return beside;
}

// It gives the lease up, so the other one need not wait until it has run out.
void RollOutLeader(World& world) {
  if (auto* leader = world.deployment->FindLeader()) leader->Replace(world.random().Between(3_s, 6_s));
  world.RunUntil(world.now() + kTakesOver);
  if (!world.deployment->FindLeader())
    throw Violation(FormatSeconds(world.now().since_start()) + "  nobody leads after an orderly end");
}

Span LeastTimeOfFailover(const Beside& beside) {
  const bool other_is_new = beside.young || beside.rolled_out;
  if (beside.leader) return other_is_new ? kFailoverByYoung : kFailoverByAnother;
  return beside.cut ? kFailoverBesideCut : other_is_new ? kFailoverBesideYoung : kFailover;
}

Span TimeOfFailover(const World& world, const Beside& beside) {
  const Span least = LeastTimeOfFailover(beside);
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

// One that runs something to move. The leader's own: if that is what is to be tried, or else only by chance;
// not if the other replica is cut off. Null: there is none.
Machine* PickVictim(World& world, const Beside& beside) {
  const auto* leader = world.deployment->FindLeader();
  std::vector<Machine*> fit;
  for (const auto& workload : world.api->workloads()) {
    if (!workload.Protected() || world.checker->IsTied(workload)) continue;
    auto& machine = MachineOfPod(world, workload);
    const bool is_leaders = leader && &leader->machine() == &machine;
    if (is_leaders && beside.leader) return &machine;
    if (!is_leaders || !beside.cut) fit.push_back(&machine);
  }
  return fit.empty() ? nullptr : world.random().Pick(fit);
}

Machine* PickVictimWithoutReplicas(World& world) {
  std::vector<Machine*> fit;
  for (const auto& workload : world.api->workloads()) {
    if (!workload.Protected() || world.checker->IsTied(workload)) continue;
    auto& machine = MachineOfPod(world, workload);
    if (world.deployment->ReplicasOn(machine).empty()) fit.push_back(&machine);
  }
  return fit.empty() ? nullptr : world.random().Pick(fit);
}

void PowerOffNode(World& world, const NodeName& name) {
  for (auto& machine : world.machines) {
    if (machine->name() != name) continue;
    world.checker->Sick(machine->id(), Cause::kDead, true);
    machine->PowerOff();
  }
}

}  // namespace

// Holds the failover of a single death to its time.
void RunPlain(World& world, Faults& faults, bool beside_cut) {
  Beside beside = DrawBeside(world, beside_cut);
  if (beside.young) RestartFollower(world);
  if (beside.rolled_out) RollOutLeader(world);
  Machine* const picked = PickVictim(world, beside);
  if (picked == nullptr) return faults.HealAll();
  Machine& victim = *picked;
  const auto* leader = world.deployment->FindLeader();
  beside.leader = leader && &leader->machine() == &victim;
  std::vector<Workload> moved;
  for (const auto& workload : world.api->workloads())
    if (workload.Protected() && !world.checker->IsTied(workload) && &MachineOfPod(world, workload) == &victim)
      moved.push_back(workload);
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

void RunOutseen(World& world, Faults& faults) {
  Replica* leader = world.deployment->FindLeader();
  if (!leader) throw Violation("nobody leads a world at rest");
  const auto cut = [&](Endpoint other) {
    world.Cut(leader->endpoint(), other);
    world.Cut(other, leader->endpoint());
  };
  world.RunUntil(world.now() + world.random().Between(0_s, 10_s));
  if (world.arrays.size() > 1) {
    cut(world.random().Pick(world.arrays)->endpoint());
  } else {
    auto left = world.random().Between(1, 3);
    for (const auto& machine : world.machines)
      if (world.deployment->ReplicasOn(*machine).empty() && left-- > 0) cut(machine->endpoint());
  }
  world.Trace(leader->name() + " is cut off");
  world.RunUntil(world.now() + kYield);
  if (leader->Leads()) throw Violation(leader->name() + " still leads, although another one sees more");
  RunPlain(world, faults, true);
}

// Of a node that a controller has no word of yet a stranger may get the volume, so none is young here.
void RunStrangers(World& world, Faults& faults) {
  auto& random = world.random();
  const auto workload = PickWorkload(world);
  auto& owner = MachineOfPod(world, workload);
  for (int i = 0; i < kStrangers; ++i) {
    auto& stranger = *random.Pick(world.machines);
    if (&stranger == &owner) continue;
    const VolumeId volume = OwnVolume(world, workload);
    world.Trace(stranger.id().value() + " asks for " + volume.value() + " of " + owner.id().value());
    world.checker->AsksAsStranger(stranger.id(), volume);
    stranger.plugin()->grants().AskAsStranger(volume);
    world.RunUntil(world.now() + random.Between(0_s, 3_s));
  }
  if (!world.deployment->ReplicasOn(owner).empty()) return faults.HealAll();
  world.checker->Sick(owner.id(), Cause::kDead, true);
  owner.PowerOff();
  const auto off = world.now();
  world.RunUntil(off + TimeOfFailover(world, {}));
  if (LastWrite(world, workload) <= off)
    throw Violation(FormatSeconds(world.now().since_start()) + "  " + workload.id.value() +
                    " was not moved in time, beside nodes that ask for its volume");
  world.checker->Sick(owner.id(), Cause::kDead, false);
  owner.PowerOn();
  faults.HealAll();
}

// The first try of a write has three seconds. A replica hears the node within half a second after the cut.
void RunSlowRecord(World& world, Faults& faults) {
  auto& random = world.random();
  Machine* const victim = PickVictimWithoutReplicas(world);
  Replica* const leader = world.deployment->FindLeader();
  if (victim == nullptr || leader == nullptr) return faults.HealAll();
  const Span takes = random.Between(1800_ms, 2700_ms);
  world.api->records_take = takes;
  const Mend others = CutNode(world, *victim, false, true, true, false);
  world.checker->Sick(victim->id(), Cause::kControllers, true);
  std::vector<Mend> controllers;  // the leader's is the first
  for (const auto& replica : world.replicas)
    controllers.insert(replica.get() == leader ? controllers.begin() : controllers.end(),
                       CutBoth(world, replica->endpoint(), victim->endpoint(), false));
  for (const auto end = world.now() + kDecides; world.api->records_slow == 0;
       world.RunUntil(world.now() + 10_ms))
    if (world.now() >= end) throw Violation(victim->id().value() + " is cut off, and is not failed over");
  const bool pauses = controllers.size() < 2 || random.Percent(30);
  world.Trace(pauses ? "failover is paused" : "another replica hears " + victim->id().value());
  pauses ? world.Pause(true) : std::exchange(controllers.back(), [] {})();
  world.RunUntil(world.now() + takes + kFences);
  for (const auto& array : world.arrays)
    if (array->Fences().contains(victim->id()))
      throw Violation(FormatSeconds(world.now().since_start()) + "  " + victim->id().value() +
                      " was fenced by what was true before its NodeFence was written");
  world.api->records_take = Span();
  others();
  for (const auto& mend : controllers) mend();
  world.checker->Sick(victim->id(), Cause::kControllers, false);
  if (pauses) world.Pause(false);
  faults.HealAll();
}

// A leader dies or stalls meanwhile. The checker sees that no write is lost by that.
void RunTrusting(World& world, Faults& faults) {
  auto& random = world.random();
  const auto workload = PickWorkload(world);
  auto& victim = MachineOfPod(world, workload);
  const auto node = victim.endpoint(), api = world.api->endpoint();
  world.checker->Sick(victim.id(), Cause::kApi, true);
  world.Cut(node, api);
  world.Cut(api, node);
  world.Trace(victim.id().value() + " is cut off from the API server");
  auto limit = kKubernetesSays + world.settings.partition_grace + kFailoverAnew;
  const bool stalls = random.Percent(50);
  if (auto* leader = world.deployment->FindLeader())
    leader->FailAtAction(static_cast<int>(random.Between(1, 8)), stalls);
  if (stalls) limit = limit + world.settings.partition_grace;  // it waits for all of that anew
  world.RunUntil(world.now() + limit);
  if (&MachineOfPod(world, workload) == &victim)
    throw Violation(workload.id.value() + " stays on a node that Kubernetes has lost for long");
  world.Mend(node, api);
  world.Mend(api, node);
  world.checker->Sick(victim.id(), Cause::kApi, false);
  faults.HealAll();
}

// It has to stop at the second, also where a leader dies meanwhile, and where the failover of another death
// took it there.
void RunPoisoned(World& world, Faults& faults) {
  auto& random = world.random();
  const auto workload = PickWorkload(world);
  // Where the next pod is there before the last one ends, the volume may just stay.
  const bool had_it_long = !workload.NamesItsPod() || random.Percent(50);
  if (had_it_long) world.RunUntil(world.now() + 2 * Settings().mount_death);
  world.checker->Poison({OwnVolume(world, workload)});
  if (auto* leader = world.deployment->FindLeader())
    world.After(random.Between(1_s, 60_s),
                [leader, by_stall = random.Percent(30), at = static_cast<int>(random.Between(1, 6))] {
                  leader->FailAtAction(at, by_stall);
                });
  const Pod pod = *world.api->FindPodOf(workload);
  if (had_it_long) {
    PowerOffNode(world, pod.node);  // another fault takes the volume to the first that dies of it
  } else {
    world.api->DeletePodAsOperator(pod.id);  // it starts anew, and mounts the volume
  }
  world.RunUntil(world.now() + kPoisonSpreads);
  if (world.checker->died_of_poison() < 2 && !world.checker->IsTied(workload))
    throw Violation("the poisoned volume was not moved at all");
  world.checker->Poison({});
  for (auto& machine : world.machines) {
    if (machine->powered()) continue;
    world.checker->Sick(machine->id(), Cause::kDead, false);
    machine->PowerOn();
  }
  world.api->AllowVolumesAsOperator();
  faults.HealAll();
}

}  // namespace lunkeeper::fencing::sim
