// A fault is a name and a function that strikes and returns how to mend it. A fault tells the checker what
// is really wrong with a node at the moment it becomes wrong, before any part of the cluster can see it.

#include "fencing/sim/faults.h"

#include <algorithm>
#include <memory>

#include "fencing/sim/api.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/cuts.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"
#include "fencing/sim/roll_out.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kMeant = 2 * kKubeletLease;

}  // namespace

const std::vector<std::string>& Faults::Names() {
  static const std::vector<std::string> kNames = {
      "power-off",        "hang",          "kubelet-hang",       "plugin-hang",
      "plugin-restart",   "cut-all",       "cut-controllers",    "cut-api",
      "cut-storage",      "cut-one-way",   "cut-replica",        "replica-crash",
      "replica-stall",    "crash-at-step", "stall-at-step",      "array-down",
      "array-restart",    "array-restore", "slow-array",         "late-watches",
      "broken-watches",   "api-errors",    "api-down",           "etcd-restore",
      "recreate-node",    "delete-node",   "fence-by-hand",      "out-of-service",
      "force-delete",     "cut-portal",    "cut-portal-for-all", "fence-at-array",
      "cut-leader",       "wrong-votes",   "slow-looks",         "tgtd-hangs",
      "tgtd-deaf",        "rack-off",      "rack-cut",           "reboot",
      "replica-node-off", "bad-network",   "clock-step",         "roll-out-replicas",
      "roll-out-plugins", "finalizers",    "endless-commands",   "compaction",
      "probes-blocked",   "paused",        "replica-node-hang",  "replica-node-cut",
      "slow-records"};
  return kNames;
}

void Faults::Compose(int count, WorldTime begin, WorldTime end, const std::set<std::string>& names) {
  std::vector<std::string> from;
  for (const auto& name : Names())
    if (names.empty() || names.contains(name)) from.push_back(name);
  // Half of them strike nodes: they are what the rest is to disturb.
  for (int i = 0; i < count; ++i) {
    auto name = world_.random().Pick(from);
    if (names.empty() && world_.random().Percent(40))
      name = from[static_cast<size_t>(world_.random().Between(0, 1))];
    const auto now = world_.now();
    world_.After(world_.random().Between(begin - now, end - 1_ms - now), [this, name] { Strike(name); });
  }
}

void Faults::HealAll() {
  for (auto& mend : std::exchange(open_, {})) mend();
}

void Faults::MendLater(Mend mend, Span least, Span most) {
  auto once = std::make_shared<Mend>(std::move(mend));
  auto run = [once] {
    if (auto what = std::exchange(*once, nullptr)) what();
  };
  open_.push_back(run);
  world_.After(world_.random().Between(least, most), run);
}

Machine& Faults::AnyMachine() { return *world_.random().Pick(world_.machines); }

void Faults::Strike(const std::string& name) {
  world_.Trace("FAULT " + name);
  using Striker = Mend (Faults::*)(const std::string&);
  for (const Striker strike : {&Faults::StrikeNode, &Faults::StrikeNetwork, &Faults::StrikeReplica,
                               &Faults::StrikeArray, &Faults::StrikeApi, &Faults::StrikeByPeople}) {
    auto mend = (this->*strike)(name);
    if (!mend) continue;
    const bool brief = world_.random().Percent(40);
    return MendLater(std::move(mend), 500_ms, brief ? 4_s : 60_s);
  }
}

Mend Faults::Sicken(Machine& machine, Cause cause, std::function<void()> undo) {
  world_.checker->Sick(machine.id(), cause, true);
  return [&checker = *world_.checker, id = machine.id(), cause, undo = std::move(undo)] {
    checker.Sick(id, cause, false);
    if (!checker.IsSick(id, cause)) undo();
  };
}

Mend Faults::Hang(Machine& machine) {
  world_.Trace("  of " + machine.id().value());
  machine.Freeze();
  return Sicken(machine, Cause::kDead, [&machine] { machine.Thaw(), machine.PowerOn(); });
}

Mend Faults::StrikeNode(const std::string& name) {
  auto& machine = AnyMachine();
  if (name == "power-off") return PowerOff(machine);
  if (name == "hang") return Hang(machine);
  if (name == "reboot") {
    auto mend = Sicken(machine, Cause::kDead, [&machine] { machine.Thaw(), machine.PowerOn(); });
    machine.ShutDown();
    return mend;
  }
  if (name == "probes-blocked") {
    // A firewall; and when its plugin hangs too, it looks dead.
    machine.BlockProbes(true);
    world_.checker->Sick(machine.id(), Cause::kControllers, true);
    return [&machine, &checker = *world_.checker] {
      machine.BlockProbes(false);
      checker.Sick(machine.id(), Cause::kControllers, false);
    };
  }
  if (name == "kubelet-hang") {
    machine.HangKubelet(true);
    return Sicken(machine, Cause::kKubelet, [&machine] { machine.HangKubelet(false); });
  }
  if (name != "plugin-hang" && name != "plugin-restart") return nullptr;
  name == "plugin-hang" ? machine.HangPlugin(true) : machine.ClosePlugin();
  return Sicken(machine, Cause::kPlugin, [&machine] { machine.HangPlugin(false); });
}

// Two or three at once, by one switch or one fuse.
Mend Faults::StrikeRack(bool power) {
  auto& random = world_.random();
  auto mends = std::make_shared<std::vector<Mend>>();
  const auto first = static_cast<size_t>(random.Between(0, 3));
  const auto count = static_cast<size_t>(random.Between(2, 3));
  for (size_t i = first; i < std::min(first + count, world_.machines.size()); ++i) {
    auto& machine = *world_.machines[i];
    mends->push_back(power ? PowerOff(machine) : CutOff(world_, machine));
  }
  return [mends] {
    for (auto& mend : *mends) mend();
  };
}

Mend Faults::PowerOff(Machine& machine) {
  world_.Trace("  of " + machine.id().value());
  machine.PowerOff();
  return Sicken(machine, Cause::kDead, [&machine] { machine.Thaw(), machine.PowerOn(); });
}

Mend Faults::StrikeNetwork(const std::string& name) {
  auto& machine = AnyMachine();
  auto& random = world_.random();
  if (name == "rack-off" || name == "rack-cut") return StrikeRack(name == "rack-off");
  if (name == "bad-network") {
    world_.SetNetwork(random.Between(0_ms, 300_ms), static_cast<int>(random.Between(0, 10)));
    return [this] { world_.SetNetwork(0_ms, 0); };
  }
  if (name == "cut-all") return CutNode(world_, machine, true, true, true, false);
  if (name == "cut-controllers") return CutNode(world_, machine, true, false, false, false);
  if (name == "cut-api") return CutNode(world_, machine, random.Percent(50), true, false, false);
  if (name == "cut-storage") return CutNode(world_, machine, random.Percent(30), false, true, false);
  if (name == "cut-one-way")
    return CutNode(world_, machine, random.Percent(50), random.Percent(50), random.Percent(50), true);
  if (name == "cut-portal") return CutPortal(world_, *random.Pick(world_.arrays), &machine);
  if (name == "cut-portal-for-all") return CutPortal(world_, *random.Pick(world_.arrays), nullptr);
  if (name == "cut-leader") {
    // It sees a dead node, and the other replica one that has lost its storage.
    for (const auto& each : world_.replicas)
      if (each->Leads())
        return [storage = CutNode(world_, machine, false, false, true, false),
                leader = CutBoth(world_, each->endpoint(), machine.endpoint(), false)] {
          storage();
          leader();
        };
    return [] {};
  }
  if (name != "cut-replica") return nullptr;
  const auto replica = random.Pick(world_.replicas)->endpoint();
  const auto one_way = random.Percent(30);
  if (random.Percent(40)) return CutBoth(world_, replica, world_.api->endpoint(), one_way);
  if (random.Percent(50)) return CutBoth(world_, replica, random.Pick(world_.arrays)->endpoint(), one_way);
  // A node whose kernel its leader cannot reach looks dead when its plugin hangs too.
  world_.checker->Sick(machine.id(), Cause::kControllers, true);
  return [this, id = machine.id(), mend = CutBoth(world_, replica, machine.endpoint(), one_way)] {
    mend();
    world_.checker->Sick(id, Cause::kControllers, false);
  };
}

Mend Faults::StrikeReplica(const std::string& name) {
  auto& random = world_.random();
  auto* replica = random.Pick(world_.replicas).get();
  for (auto& each : world_.replicas)
    if (each->Leads() && random.Percent(70)) replica = each.get();
  if (name == "wrong-votes") {
    replica->AlwaysSayYes(true);
    return [replica] { replica->AlwaysSayYes(false); };
  }
  if (name == "roll-out-replicas") return RollOutReplicas(world_), [] {};
  if (name == "paused") return world_.Pause(true), [this] { world_.Pause(false); };
  auto& its_machine = replica->machine();
  if (name == "replica-node-off") return PowerOff(its_machine);
  if (name == "replica-node-hang") return Hang(its_machine);
  if (name == "replica-node-cut") return CutOff(world_, its_machine);
  if (name == "clock-step") {
    const Span by =
        (random.Percent(50) ? 1 : -1) * random.Between(500_ms, random.Percent(50) ? 20_s : 7200_s);
    (random.Percent(50) ? its_machine : AnyMachine()).StepClock(by);
    return [] {};
  }
  if (name == "replica-crash") {
    replica->Crash(random.Between(200_ms, 15_s));
  } else if (name == "replica-stall") {
    replica->Stall(random.Between(500_ms, 20_s));
  } else if (name == "crash-at-step" || name == "stall-at-step") {
    replica->FailAtAction(static_cast<int>(random.Between(1, 8)), name == "stall-at-step");
  } else {
    return nullptr;
  }
  return [replica] { replica->FailAtAction(0, false); };
}

Mend Faults::StrikeArray(const std::string& name) {
  auto& array = *world_.random().Pick(world_.arrays);
  if (name == "array-down" || name == "array-restart") {
    const bool sessions_survive = world_.random().Percent(50);
    array.Stop();
    if (name == "array-restart") {
      array.Start(sessions_survive);
      return [] {};
    }
    return [&array, sessions_survive] { array.Start(sessions_survive); };
  }
  if (name == "slow-array") {
    array.set_slow(world_.random().Between(100_ms, 1800_ms));
    return [&array] { array.set_slow(3_ms); };
  }
  if (name == "endless-commands") {
    array.set_endless(static_cast<int>(world_.random().Between(2, 100)));
    return [&array] { array.set_endless(0); };
  }
  if (name == "tgtd-hangs" || name == "tgtd-deaf") {
    array.set_second(name == "tgtd-deaf" ? SecondTgtd::kDeaf : SecondTgtd::kHangs);
    return [&array] { array.set_second(SecondTgtd::kAnswers); };
  }
  if (name == "slow-looks") {
    array.set_looks(Span(), world_.random().Between(300_ms, 7_s));
    return [&array] { array.end_slow_looks(); };
  }
  if (name != "array-restore") return nullptr;
  array.TakeCopy();
  world_.After(world_.random().Between(1_s, 40_s), [this, &array] {
    world_.Trace("array " + array.id().value() + " goes back in time");
    array.RestoreCopy();
    MendLater([&array] { array.AcceptRestore(); }, 1_s, 20_s);
  });
  return [] {};
}

Mend Faults::StrikeApi(const std::string& name) {
  auto& api = *world_.api;
  auto& random = world_.random();
  if (name == "late-watches") {
    api.late_percent = static_cast<int>(random.Between(5, 60));
    return [&api] { api.late_percent = 0; };
  }
  if (name == "broken-watches" || name == "compaction") {
    if (name == "compaction") api.Compact();
    api.BreakWatches();
    return [] {};
  }
  if (name == "slow-records") {
    api.records_take = random.Between(500_ms, random.Percent(50) ? 3_s : 20_s);
    return [&api] { api.records_take = Span(); };
  }
  if (name == "finalizers") {
    ++api.finalizers;
    return [&api] { --api.finalizers; };
  }
  if (name == "api-errors") {
    api.error_percent = static_cast<int>(random.Between(5, 60));
    return [&api] { api.error_percent = 0; };
  }
  if (name == "api-down") {
    api.up = false;
    api.refuses = random.Percent(50);
    if (api.refuses) api.BreakWatches();
    return [&api] { api.up = true; };
  }
  if (name != "etcd-restore") return nullptr;
  api.TakeCopy();
  world_.After(random.Between(1_s, 30_s), [this, &api] {
    world_.Trace("etcd goes back in time");
    world_.checker->HistoryRewritten();
    api.RestoreCopy();
  });
  return [] {};
}

// Another machine takes the name while the old one lives on, cut off from all but, perhaps, its storage.
Mend Faults::Recreate(Machine& machine) {
  for (const auto& other : world_.machines)
    if (other.get() != &machine && other->name() == machine.name()) return [] {};
  CutNode(world_, machine, true, true, world_.random().Percent(50), false);
  world_.After(world_.random().Between(100_ms, 20_s), [this, name = machine.name()] {
    for (const auto& other : world_.machines)
      if (other->name() == name && !other->id().value().ends_with("1")) return;
    world_.machines.push_back(std::make_unique<Machine>(world_, name, 2));
  });
  return [this, &machine] {
    // It is found and switched off; it never comes back.
    world_.checker->Sick(machine.id(), Cause::kDead, true);
    machine.Retire();
  };
}

Mend Faults::StrikeByPeople(const std::string& name) {
  auto& machine = AnyMachine();
  auto& api = *world_.api;
  if (name == "recreate-node") return Recreate(machine);
  if (name == "roll-out-plugins") return RollOutPlugins(world_), [] {};
  if (name == "delete-node") {
    api.DeleteNode(machine.name());
    for (const auto& each : world_.machines) {
      if (each->name() != machine.name()) continue;  // a new machine under an old name is meant too
      // The person who deletes it means it, until its kubelet has registered it anew.
      for (const Cause cause : {Cause::kApi, Cause::kControllers}) {
        world_.checker->Sick(each->id(), cause, true);
        world_.After(
            kMeant, [&checker = *world_.checker, id = each->id(), cause] { checker.Sick(id, cause, false); });
      }
    }
    return [] {};
  }
  if (name == "fence-by-hand") {
    api.CreateFence(machine.id());
    return [&api, id = machine.id()] { api.DeleteFence(id); };
  }
  if (name == "fence-at-array") {
    auto& array = *world_.random().Pick(world_.arrays);
    array.FenceAsOperator(machine.name());
    return [&array, node = machine.name()] { array.UnfenceAsOperator(node); };
  }
  if (name == "out-of-service") {
    api.SetOutOfService(machine.name(), true);
    return [&api, node = machine.name()] { api.SetOutOfService(node, false); };
  }
  if (name != "force-delete") return nullptr;
  api.ForceDeleteAsOperator(world_.random().Pick(api.workloads()));
  return [] {};
}

}  // namespace lunkeeper::fencing::sim
