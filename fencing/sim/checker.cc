// The checker sees what no part of a real cluster sees: every write with its sequence number, every grant
// with its generation, and what is really wrong with each node. The simulated parts report each event as it
// happens, and it compares it with what was promised before: an acknowledged write stays readable; no write
// lands after its fence was reported; nothing is unfenced, untainted or deleted too early; only the leader
// acts; and a node is failed over only if something was really wrong with it. At the end it says what still
// keeps the world from being well.

#include "fencing/sim/checker.h"

#include <algorithm>

#include "fencing/core/trace.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

// kHard: 1.5 s of outage, with half a second between heartbeats before and after it, is 2.5 s of silence.
// A leader acts for 3 s from its last renewal on, and what it has begun leaves it within another one.
constexpr Span kActsFor = 4300_ms, kMemory = 8_s, kSoft = 55_s, kHard = 1500_ms, kBudgetWindow = 300_s,
               kPause = 29_s;
constexpr Span kOld = 15_s, kOutseen = 25_s, kYieldPause = 59_s;
// How long a replica may take for there what is gone, or the other way round: a look that was lost is waited
// for, and a late heartbeat says that its node lives. And then how long until it yields.
constexpr Span kSightSettles = 12_s, kYieldsWithin = 5_s, kYoung = 9_s;
constexpr Span kFresh = 15_s, kVoteLasts = 500_ms;
// A kubelet behind a cut is taken for well again when it next renews its lease only.
constexpr Span kKubeletMemory = kMemory + kKubeletLease;

bool SilencesKubelet(Cause cause) {
  return cause == Cause::kDead || cause == Cause::kKubelet || cause == Cause::kApi;
}

}  // namespace

Checker::Checker(World& world) : world_(world) { LookAtLeader(); }

void Checker::Fail(const std::string& what) const {
  throw Violation(FormatSeconds(world_.now().since_start()) + "  " + what);
}

Write Checker::NextWrite(const VolumeId& volume) {
  return {static_cast<size_t>(world_.random().Between(0, kBlocks - 1)), ++written_[volume]};
}

void Checker::Landing(const ArrayId& array, const NodeId& node, const VolumeId& volume, Generation generation,
                      const Write& write, uint64_t current) {
  const auto which = "a write of " + node.value() + " to " + volume.value();
  if (generation < latest_[volume]) Fail(which + " landed after another grant's first login");
  for (const NodeId& id : {node, MachineId(MachineOf(node))}) {
    const auto fence = reported_.find({array, id});
    if (fence != reported_.end() && generation < fence->second.generation &&
        fence->second.volumes.contains(volume))
      Fail(which + " landed after the fence was reported");
  }
  const bool acknowledged = acknowledged_[volume][write.block] == current && current != 0;
  if (write.sequence < current && acknowledged) Fail(which + " overtook a newer, acknowledged one");
}

void Checker::Acknowledged(const VolumeId& volume, const Write& write) {
  if (write.sequence <= lost_[volume]) return;
  auto& newest = acknowledged_[volume][write.block];
  newest = std::max(newest, write.sequence);
}

void Checker::Granting(const ArrayId& array, const NodeId& node, const VolumeId& volume, bool drained) {
  if (in_force_.contains({array, node}) || in_force_.contains({array, MachineId(MachineOf(node))}))
    Fail(volume.value() + " is granted to " + node.value() + ", which is fenced");
  if (!drained) Fail(volume.value() + " is granted while another's commands are in flight");
}

void Checker::LoggedIn(const VolumeId& volume, Generation generation) {
  latest_[volume] = std::max(latest_[volume], generation);
}

void Checker::Reads(const Pod& pod) {
  for (const auto& [array, volumes] : pod.volumes)
    for (const auto& volume : volumes)
      for (size_t block = 0; block < kBlocks; ++block)
        if (world_.FindArray(array).BlockOf(volume, block) < acknowledged_[volume][block])
          Fail(pod.id.value() + " misses an acknowledged write on " + volume.value());
}

// The data goes back with the array; what was acknowledged since is lost by the operator's own doing.
void Checker::Restored(ArrayModel& array) {
  for (const auto& workload : world_.api->workloads())
    for (const auto& [id, volumes] : workload.volumes)
      if (id == array.id())
        for (const auto& volume : volumes) {
          lost_[volume] = written_[volume];
          for (size_t block = 0; block < kBlocks; ++block)
            acknowledged_[volume][block] = array.BlockOf(volume, block);
        }
  std::erase_if(reported_, [&](const auto& entry) { return entry.first.first == array.id(); });
  terms_.erase(array.id());
  std::erase_if(in_force_, [&](const auto& entry) { return entry.first == array.id(); });
  rewritten_ = true;
}

void Checker::FenceReported(const ArrayId& array, const ArrayFence& fence) {
  reported_[{array, fence.node}] = {fence.generation, fence.volumes};
  in_force_.emplace(array, fence.node);
}

void Checker::Started(const ArrayModel& array) {
  for (const auto& [id, node] : in_force_)
    if (id == array.id() && !array.Fences().contains(node))
      Fail(id.value() + " started without the fence of " + node.value());
}

void Checker::Obeys(const ArrayId& array, Term term) {
  auto& newest = terms_[array];
  if (term < newest) Fail(array.value() + " obeys the old term " + std::to_string(term));
  newest = term;
}

void Checker::Unfenced(const ArrayId& array, const ArrayFence& fence, Generation asked) {
  if (asked != fence.generation)
    Fail(fence.node.value() + " was unfenced by one who meant another fence of it");
  in_force_.erase({array, fence.node});
  for (const auto& machine : world_.machines)
    if (machine->id() == fence.node && machine->HasLeftovers(array, fence.volumes, fence.generation))
      Fail(fence.node.value() + " was unfenced while something of the fenced volumes is left on it");
}

void Checker::DiedOf(const VolumeId& volume, const NodeId& node) {
  died_of_poison_.insert(node);
  if (died_of_poison_.size() > 2) Fail(node.value() + " died of " + volume.value() + ", the third one");
  Sick(node, Cause::kDead, true);
}

void Checker::Untainting(const Node& node) {
  // Another machine of that name may need it gone.
  for (const auto& machine : world_.machines)
    if (machine->name() == node.name && machine->id() != node.node_id) return;
  for (const auto& machine : world_.machines)
    if (machine->id() == node.node_id && machine->id().value() == node.taint && machine->HasFailedDevice())
      Fail(node.name.value() + " was untainted while a fenced device is left on it");
}

void Checker::Deleting(const Pod& pod, Grace grace) {
  if (grace == Grace::kOrdinary) return;
  if (pod.policy == FailoverPolicy::kNever) Fail(pod.id.value() + " has opted out and was deleted by force");
  const auto order = ordered_.find(pod.uid);
  const auto ordered_at = order == ordered_.end() ? world_.now() : order->second;
  for (const auto& machine : world_.machines) {
    const auto* container = machine->FindContainer(pod.uid);
    if (!container || !container->started) continue;
    // A leader that stalls right before the call deletes late, and the UID alone cannot tell that another
    // machine of the name has started the pod since. It holds a grant of its own, for which others wait.
    if (container->started_at > ordered_at) continue;
    for (const auto& [array, volumes] : container->pod.volumes)
      for (const auto& volume : volumes) {
        const auto* device = machine->FindDevice(volume);
        if (!device) continue;
        auto& at = world_.FindArray(array);
        if (at.GenerationOf(volume) == device->generation || at.InFlight(volume, device->generation))
          Fail(pod.id.value() + " was deleted by force before " + volume.value() + " was fenced from " +
               machine->id().value());
      }
  }
  if (pod.running) ++failovers_;
}

void Checker::Acts(const Replica& replica, const std::string& what) {
  if (world_.now() - replica.renewed_at() > kActsFor)
    Fail(replica.name() + " acts without the lease: " + what);
}

void Checker::Orders(const Uid& pod) { ordered_[pod] = world_.now(); }

void Checker::Fences(const ArrayId& array, const NodeId& node, const VolumeSet& volumes) {
  if (rewritten_ || IsMachineId(node)) return;
  // What a person fences loses all it has.
  const auto record = world_.api->fences().find(node);
  if (record != world_.api->fences().end() && record->second.is_manual()) return;
  // The pods of a name run on its newest machine; what an older one holds it keeps from them.
  const auto object = world_.api->nodes().find(NameOf(node));
  if (object != world_.api->nodes().end() && object->second.node_id != node) return;
  for (const auto& [id, pod] : world_.api->pods()) {
    if (pod.policy != FailoverPolicy::kNever || pod.node != NameOf(node) || !pod.running) continue;
    for (const auto& [its_array, used] : pod.volumes)
      for (const auto& volume : used)
        if (its_array == array && volumes.contains(volume))
          Fail(id.value() + " has opted out, and its volume is fenced");
  }
}

void Checker::Decides(const Replica& replica, const NodeFence& fence) {
  // An orphan that is adopted is fenced already. It needs no leave, but it counts as one of the budget's
  // nodes.
  const bool adopted = !fence.generations.empty();
  if (!adopted && !MayBeFailedOver(fence.node))
    Fail(fence.node.value() + " is well, and is failed over: " + fence.cause);
  const auto yes = replica.YesAt(fence.node);
  if (!adopted && yes && world_.now() - *yes < kVoteLasts)
    Fail(fence.node.value() + " is failed over although its heartbeats reach another replica");
  // A node within the budget stays within it, by any replica's count.
  bool counted = false;
  for (const auto& [who, nodes] : decisions_) {
    const auto found = nodes.find(fence.node);
    counted |= found != nodes.end() && world_.now() - found->second < kBudgetWindow;
  }
  if (counted) return;
  auto& decisions = decisions_[replica.name()];
  std::erase_if(decisions, [&](const auto& entry) { return world_.now() - entry.second > kBudgetWindow; });
  std::optional<WorldTime> latest;
  for (const auto& [node, at] : decisions) latest = std::max<std::optional<WorldTime>>(latest, at);
  if (!adopted && latest && world_.now() - *latest < kPause)
    Fail(fence.node.value() + " is failed over past the budget and without a pause");
  decisions.emplace(fence.node, world_.now());
}

namespace {

struct Sight {
  size_t arrays = 0, nodes = 0;
  bool IsMoreThan(const Sight& other) const {
    return arrays >= other.arrays && nodes >= other.nodes && (arrays > other.arrays || nodes > other.nodes);
  }
};

bool AreConnected(const World& world, Endpoint a, Endpoint b) { return world.Open(a, b) && world.Open(b, a); }

bool Sees(const World& world, const Replica& replica, const ArrayModel& array) {
  return array.serves() && AreConnected(world, replica.endpoint(), array.endpoint());
}

bool Sees(const World& world, const Replica& replica, const Machine& machine) {
  const auto node = world.api->nodes().find(machine.name());
  return node != world.api->nodes().end() && node->second.node_id == machine.id() && machine.Heartbeats() &&
         world.Open(machine.endpoint(), replica.endpoint());
}

Sight SightOf(const World& world, const Replica& replica) {
  Sight sight;
  for (const auto& array : world.arrays) sight.arrays += Sees(world, replica, *array);
  for (const auto& machine : world.machines) sight.nodes += Sees(world, replica, *machine);
  return sight;
}

bool CouldLead(const World& world, const Replica& replica) {
  return replica.running() && !replica.stalled() && world.now() - replica.began_at() >= kOld &&
         world.api->up && AreConnected(world, replica.endpoint(), world.api->endpoint());
}

}  // namespace

// A look each half second. How soon it has to yield does not matter to a failover that is under way.
void Checker::LookAtLeader() {
  world_.After(500_ms, [this] { LookAtLeader(); });
  NoteSights();
  for (const auto& leader : world_.replicas) {
    if (!leader->Leads()) continue;
    // One that is not told what changes can do nothing with what it sees.
    const Sight own = leader->Watches() ? SightOf(world_, *leader) : Sight();
    bool outseen = false, may_stay = !world_.api->fences().empty() || world_.api->error_percent > 0;
    for (const auto& other : world_.replicas) {
      if (other == leader || !other->running()) continue;
      if (world_.now() - other->stalled_until() >= kYoung && MaySeeMore(*other, *leader))
        outseen_at_[leader->name()] = world_.now();
      if (!SightOf(world_, *other).IsMoreThan(own)) continue;
      outseen |= CouldLead(world_, *leader) && CouldLead(world_, *other) && other->Watches() &&
                 AreConnected(world_, leader->endpoint(), other->endpoint());
    }
    const auto yielded = yielded_at_.find(leader->name());
    may_stay |= yielded != yielded_at_.end() && world_.now() - yielded->second < kYieldPause;
    if (!outseen || may_stay) {
      outseen_since_.erase(leader->name());
    } else if (world_.now() - outseen_since_.emplace(leader->name(), world_.now()).first->second > kOutseen) {
      Fail(leader->name() + " leads on, although another one sees more");
    }
  }
}

void Checker::NoteSights() {
  for (const auto& replica : world_.replicas) {
    const auto note = [&](const std::string& what, bool sees) {
      auto& seen = seen_[{replica->name(), what}];
      (sees ? seen.at : seen.missed_at) = world_.now();
    };
    for (const auto& array : world_.arrays) note(array->id().value(), Sees(world_, *replica, *array));
    for (const auto& machine : world_.machines) note(machine->id().value(), Sees(world_, *replica, *machine));
  }
}

// One that has not noticed yet what the other one has, or the other way round.
bool Checker::MaySeeMore(const Replica& replica, const Replica& leader) const {
  const auto lately = [&](const std::optional<WorldTime>& at) {
    return at && world_.now() - *at < kSightSettles;
  };
  Sight most, least;
  const auto count = [&](const std::string& what, size_t& in_most, size_t& in_least) {
    in_most += lately(seen_.at({replica.name(), what}).at);
    const Seen& own = seen_.at({leader.name(), what});
    in_least += leader.Watches() && lately(own.at) && !lately(own.missed_at);
  };
  for (const auto& array : world_.arrays) count(array->id().value(), most.arrays, least.arrays);
  for (const auto& machine : world_.machines) count(machine->id().value(), most.nodes, least.nodes);
  return most.IsMoreThan(least);
}

void Checker::Yields(const Replica& replica) {
  const auto last = yielded_at_.find(replica.name());
  if (last != yielded_at_.end() && world_.now() - last->second < kYieldPause)
    Fail(replica.name() + " yields twice within a minute");
  const auto outseen = outseen_at_.find(replica.name());
  if (outseen == outseen_at_.end() || world_.now() - outseen->second > kYieldsWithin)
    Fail(replica.name() + " yields although no other one sees more");
  yielded_at_[replica.name()] = world_.now();
}

void Checker::Sick(const NodeId& node, Cause cause, bool on) {
  auto& illness = illnesses_[{node, cause}];
  // Two short ones in a row look like one.
  const bool again = illness.until && world_.now() - *illness.until < kHard;
  if (on && illness.faults++ == 0 && !again) illness.since = world_.now();
  if (!on && --illness.faults == 0) illness.until = world_.now();
}

bool Checker::IsSick(const NodeId& node, Cause cause) const {
  const auto found = illnesses_.find({node, cause});
  return found != illnesses_.end() && found->second.faults > 0;
}

bool Checker::MayBeFailedOver(const NodeId& node) const {
  int soft = 0;
  bool kubelet = false;  // may be taken for sick
  // A machine that was dead and came back without its storage, or the other way round, was away for both.
  struct Away {
    WorldTime since, until;
  };
  std::optional<Away> away;
  for (const auto& [key, illness] : illnesses_) {
    if (key.first != node) continue;
    const auto end = illness.faults > 0 ? world_.now() : *illness.until;
    kubelet |= SilencesKubelet(key.second) && world_.now() - end <= kKubeletMemory;
    if (world_.now() - end > kMemory) continue;
    const bool hard = key.second == Cause::kDead || key.second == Cause::kStorage;
    if (hard) {
      const bool joined = away && illness.since - away->until < kHard && away->since - end < kHard;
      away = joined ? Away{std::min(away->since, illness.since), std::max(away->until, end)}
                    : Away{illness.since, end};
      if (away->until - away->since >= kHard) return true;
    }
    if (!hard && key.second != Cause::kPlugin && key.second != Cause::kControllers &&
        end - illness.since >= kSoft)
      return true;
    soft += !hard && !SilencesKubelet(key.second);
  }
  return soft + kubelet >= 2;
}

std::string Checker::UnsettledWorkload(const Workload& workload) const {
  if (!workload.Protected()) return "";
  const auto found = world_.api->pods().find(workload.id);
  if (found == world_.api->pods().end()) return workload.id.value() + " has no pod";
  const auto& pod = found->second;
  for (const auto& machine : world_.machines)
    if (const auto wrote = machine->WroteAt(pod.id);
        machine->FindContainer(pod.uid) && wrote && world_.now() - *wrote < kFresh)
      return "";
  return workload.id.value() + " does not write; its pod is on '" + pod.node.value() + "'";
}

std::string Checker::Unsettled() const {
  for (const auto& workload : world_.api->workloads())
    if (auto why = UnsettledWorkload(workload); !why.empty()) return why;
  for (const auto& [name, node] : world_.api->nodes()) {
    if (!node.taint.empty()) return name.value() + " is still tainted";
    if (!node.ready) return name.value() + " is not ready";
  }
  for (const auto& [node, fence] : world_.api->fences())
    return "the record of " + node.value() + " is still there";
  for (const auto& array : world_.arrays)
    for (const auto& [node, fence] : array->Fences())
      for (const auto& machine : world_.machines)
        if (IsIdFor(node, machine->id()) && machine->powered())
          return node.value() + " is still fenced on " + array->id().value();
  return "";
}

}  // namespace lunkeeper::fencing::sim
