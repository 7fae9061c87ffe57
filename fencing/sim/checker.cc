// The checker sees what no part of a real cluster sees: every write with its sequence number, every grant
// with its generation, and what is really wrong with each node. The simulated parts report each event as it
// happens, and it compares it with what was promised before: an acknowledged write stays readable; no write
// lands after its fence was reported; nothing is unfenced, untainted or deleted too early; only the leader
// acts; and a node is failed over only if something was really wrong with it. At the end it says what still
// keeps the world from being well.

#include "fencing/sim/checker.h"

#include <algorithm>

#include "fencing/core/eligibility.h"
#include "fencing/core/trace.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

// kHard: 1.5 s of outage, with half a second between heartbeats before and after it, is 2.5 s of silence.
// A leader acts for 3 s from its last renewal on, and what it has begun leaves it within another one.
constexpr Span kActsFor = 4300_ms, kMemory = 8_s, kSoft = 55_s, kHard = 1500_ms, kBudgetWindow = 300_s,
               kPause = 29_s;
constexpr size_t kOwnBlocks = 4;  // of a volume that one node writes to
constexpr Span kFresh = 15_s, kWritesOn = 1_s, kPauseKnown = 1500_ms, kVoteLasts = 500_ms;
// A kubelet behind a cut is taken for well again when it next renews its lease only.
constexpr Span kKubeletMemory = kMemory + kKubeletLease;

bool SilencesKubelet(Cause cause) {
  return cause == Cause::kDead || cause == Cause::kKubelet || cause == Cause::kApi;
}

}  // namespace

Checker::Checker(World& world) : world_(world), leader_(world), poison_(world) {}

void Checker::Fail(const std::string& what) const {
  throw Violation(FormatSeconds(world_.now().since_start()) + "  " + what);
}

// Without more of them a volume would be written seldom, and a stale block would stay unseen.
Write Checker::NextWrite(const VolumeId& volume, const NodeId& node) {
  const auto sequence = ++written_[volume];
  if (IsShared(volume)) return {own_blocks_.emplace(node, own_blocks_.size()).first->second, sequence};
  return {static_cast<size_t>(world_.random().Between(0, kOwnBlocks - 1)), sequence};
}

void Checker::Landing(const ArrayId& array, const NodeId& node, const VolumeId& volume, Generation generation,
                      const Write& write, uint64_t current) {
  const auto which = "a write of " + node.value() + " to " + volume.value();
  if (generation < latest_[volume] && !IsShared(volume))
    Fail(which + " landed after another grant's first login");
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
  if (IsStranger(node, volume))
    Fail(volume.value() + " is granted to " + node.value() + ", none of whose pods uses it");
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

void Checker::FenceBegins(const ArrayId& array, const ArrayFence& fence) {
  auto& fenced = fenced_[{array, fence.node}];
  for (const auto& volume : fence.volumes) fenced[volume] = fence.generation;
}

// Of a node that nobody fenced nothing may end, whatever becomes of others that share the volume.
void Checker::Revoked(const ArrayId& array, const NodeId& node, const VolumeId& volume,
                      Generation generation) {
  if (rewritten_ || released_.contains({array, generation})) return;
  for (const NodeId& id : {node, MachineId(MachineOf(node))}) {
    const auto fenced = fenced_.find({array, id});
    if (fenced == fenced_.end()) continue;
    const auto found = fenced->second.find(volume);
    if (found != fenced->second.end() && found->second > generation) return;
  }
  Fail(node.value() + " loses " + volume.value() + ", from which nobody fenced it");
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
  poison_.DiedOf(volume, node);
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

// A node that has lost its storage can mount nothing either, and the one controller that hears it may not be
// asked.
void Checker::TaintsForPlugin(const Node& node) {
  for (const auto cause : {Cause::kDead, Cause::kPlugin, Cause::kControllers, Cause::kStorage})
    if (WasSick(node.node_id, cause, world_.settings.plugin_not_ready)) return;
  Fail(node.name.value() + " is tainted, and its plugin is well");
}

void Checker::Deleting(const Pod& pod, Grace grace) {
  if (grace == Grace::kOrdinary) return;
  if (!world_.api->FindWorkloadOf(pod.id)->Protected())
    Fail(pod.id.value() + " is to be left alone, and was deleted by force");
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
        if (at.HasGrant(device->generation) || at.InFlight(volume, device->generation))
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

void Checker::Fences(const ArrayId& array, Term term, const NodeId& node, const VolumeSet& volumes) {
  if (rewritten_ || IsMachineId(node)) return;
  // A leader that stalled goes by what was true before; the array refuses it.
  const auto newest = terms_.find(array);
  if (newest != terms_.end() && term < newest->second) return;
  // What a person fences loses all it has.
  const auto record = world_.api->fences().find(node);
  if (record != world_.api->fences().end() && record->second.is_manual()) return;
  // The pods of a name run on its newest machine; what an older one holds it keeps from them.
  if (world_.api->nodes().contains(NameOf(node)) && IsReplaced(node)) return;
  for (const auto& [id, pod] : world_.api->pods()) {
    if (world_.api->FindWorkloadOf(id)->Protected() || pod.node != NameOf(node) || !pod.running) continue;
    if (pod.deleted) continue;  // by a person; a finalizer alone keeps the object
    for (const auto& [its_array, used] : pod.volumes)
      for (const auto& volume : used)
        if (its_array == array && volumes.contains(volume))
          Fail(id.value() + " is to be left alone, and its volume is fenced");
  }
}

void Checker::Decides(const Replica& replica, const NodeFence& fence) {
  poison_.Decides(replica, fence);
  // An orphan that is adopted is fenced already. It needs no leave, but it counts as one of the budget's
  // nodes.
  const bool adopted = !fence.generations.empty();
  for (const auto& [array, generation] : fence.generations) {
    const auto there = world_.FindArray(array).Fences();
    const auto found = there.find(fence.node);
    if (!rewritten_ && (found == there.end() || found->second.generation != generation))
      Fail(fence.node.value() + " is failed over for a fence that " + array.value() + " does not have");
  }
  if (!adopted && !MayBeFailedOver(fence.node))
    Fail(fence.node.value() + " is well, and is failed over: " + fence.cause);
  const auto yes = replica.YesAt(fence.node);
  if (!adopted && yes && world_.now() - *yes < kVoteLasts && !IsLostToKubernetes(fence.node))
    Fail(fence.node.value() + " is failed over although its heartbeats reach another replica");
  if (!adopted) RefuseIfItWrites(replica, fence);
  const auto paused = world_.paused_since();
  if (!adopted && paused && world_.now() - std::max(*paused, replica.stalled_until()) > kPauseKnown)
    Fail(fence.node.value() + " is failed over while failover is paused");
  // A machine within the budget stays within it, by any replica's count, also as another instance.
  const auto machine = NameOf(fence.node);
  bool counted = false;
  for (const auto& [who, nodes] : decisions_) {
    const auto found = nodes.find(machine);
    counted |= found != nodes.end() && world_.now() - found->second < kBudgetWindow;
  }
  if (counted) return;
  auto& decisions = decisions_[replica.name()];
  std::erase_if(decisions, [&](const auto& entry) { return world_.now() - entry.second > kBudgetWindow; });
  std::optional<WorldTime> latest;
  for (const auto& [node, at] : decisions) latest = std::max<std::optional<WorldTime>>(latest, at);
  if (!adopted && latest && world_.now() - *latest < kPause)
    Fail(fence.node.value() + " is failed over past the budget and without a pause");
  decisions.emplace(machine, world_.now());
}

// By what its workloads did, and where the replica could see it: whatever else is wrong with a node, one
// whose I/O goes on is well enough to be left alone. What may end it all the same is its own kubelet, and
// what has just ended may show as silence yet.
void Checker::RefuseIfItWrites(const Replica& replica, const NodeFence& fence) const {
  const auto sick = [&](Cause cause, Span within) { return WasSick(fence.node, cause, within); };
  if (rewritten_ || IsReplaced(fence.node) || sick(Cause::kDead, kMemory) || sick(Cause::kStorage, kMemory) ||
      sick(Cause::kKubelet, kKubeletMemory) || IsLostToKubernetes(fence.node))
    return;
  for (const auto& machine : world_.machines) {
    if (machine->id() != fence.node) continue;
    for (const auto& workload : world_.api->workloads()) {
      const auto wrote = machine->WroteAt(workload);
      const bool seen = std::ranges::all_of(workload.volumes, [&](const auto& entry) {
        return Sees(world_, replica, world_.FindArray(entry.first));
      });
      if (seen && wrote && world_.now() - *wrote < kWritesOn)
        Fail(fence.node.value() + " is failed over although " + workload.id.value() +
             " writes on: " + fence.cause);
    }
  }
}

bool Checker::IsReplaced(const NodeId& node) const {
  const auto object = world_.api->nodes().find(NameOf(node));
  return object == world_.api->nodes().end() || object->second.node_id != node;
}

// For long, and that is trusted.
bool Checker::IsLostToKubernetes(const NodeId& node) const {
  const auto found = illnesses_.find({node, Cause::kApi});
  if (world_.settings.partitioned != Partitioned::kTrustKubernetes || found == illnesses_.end()) return false;
  const auto end = found->second.faults > 0 ? world_.now() : *found->second.until;
  return end - found->second.since >= kSoft && world_.now() - end <= kKubeletMemory;
}

bool Checker::WasSick(const NodeId& node, Cause cause, Span within) const {
  const auto found = illnesses_.find({node, cause});
  if (found == illnesses_.end()) return false;
  return found->second.faults > 0 || (found->second.until && world_.now() - *found->second.until <= within);
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
    // One that Kubernetes alone has lost sends heartbeats, and says itself that its kubelet is well.
    const bool trusted =
        key.second == Cause::kApi && world_.settings.partitioned == Partitioned::kTrustKubernetes;
    if ((key.second == Cause::kKubelet || trusted) && end - illness.since >= kSoft) return true;
    soft += !hard && !SilencesKubelet(key.second);
  }
  return soft + kubelet >= 2;
}

bool Checker::IsTied(const Workload& workload) const {
  const Pod* pod = world_.api->FindPodOf(workload);
  return std::ranges::any_of(world_.api->workloads(), [&](const Workload& other) {
    const Pod* beside = other.Protected() ? nullptr : world_.api->FindPodOf(other);
    return pod && beside && beside->node == pod->node &&
           std::ranges::any_of(workload.volumes, [&](const auto& entry) {
             const auto theirs = other.volumes.find(entry.first);
             return theirs != other.volumes.end() && HaveCommonVolume(entry.second, theirs->second);
           });
  });
}

std::string Checker::UnsettledWorkload(const Workload& workload) const {
  if (!workload.Protected()) return "";
  const Pod* pod = world_.api->FindPodOf(workload);
  if (!pod) return workload.id.value() + " has no pod";
  for (const auto& machine : world_.machines)
    if (const auto wrote = machine->WroteAt(workload);
        machine->FindContainer(pod->uid) && wrote && world_.now() - *wrote < kFresh)
      return "";
  // A device that failed for good stays for as long as one of its pods.
  if (IsTied(workload)) return "";
  return workload.id.value() + " does not write; its pod is on '" + pod->node.value() + "'";
}

std::string Checker::Unsettled() const {
  for (const auto& workload : world_.api->workloads())
    if (auto why = UnsettledWorkload(workload); !why.empty()) return why;
  for (const auto& [name, node] : world_.api->nodes()) {
    if (!node.taint.empty()) return name.value() + " is still tainted";
    if (node.plugin_taint != PluginTaint::kNone) return name.value() + " is still tainted for its plugin";
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
