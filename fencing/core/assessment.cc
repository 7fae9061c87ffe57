// Everything here is a question about one NodeFence, asked on the loop's thread at each Reconcile. Nothing is
// kept from one to the next, except when a graceful move began (State::leaving_since) and that a death was
// decided (State::decided_dead).
//
//   AssessNode   who asked, whether it is to be lifted → the pods to move → the fences in force → whether
//                there is reason to act → whether it may begin → the arrays that matter
//   PhaseOf      the first phase of phase.h whose work is not done
//
// A person's request is about the machine, evidence is about one instance. Most questions with "machine" in
// their name exist because of that difference.
#include "fencing/core/assessment.h"

#include <algorithm>
#include <iterator>

#include "fencing/core/instances.h"
#include "fencing/core/words.h"

namespace lunkeeper::fencing {
namespace {

// It says so, and no array gives it anything. A pod's object may go while its node still writes what is in
// the page cache, and a fence at that moment would lose it. All instances, as all of them are cut off.
bool HasNothing(const State& state, const NodeName& machine) {
  bool says = false;
  for (const auto* instance : InstancesOf(state.evidence.nodes(), machine)) {
    const auto& [id, known] = *instance;
    if (known.HasGrants() || !known.heartbeat.present.empty()) return false;
    says = says || state.evidence.SignalsOf(id, known, state.now).network == Network::kArrives;
  }
  return says;
}

// Each replica counts the deadline from when it first saw the pods being asked. A new leader that has not
// seen it begin gives the pods the whole time again, which costs a second and needs no clock in the record.
bool IsGraceOver(State& state, const Assessment& seen) {
  if (!seen.leaving) return false;
  // Where a person asked: once they have left with all they had, or the fence has begun, nothing is waited
  // for.
  const bool asked = seen.record.is_manual();
  const auto left = [&] { return seen.plan.move.empty() && HasNothing(state, NameOf(seen.record.node)); };
  if (asked && (!seen.fences.empty() || left())) return true;
  const auto deadline = asked ? state.settings.asked_deadline : state.settings.graceful_deadline;
  const auto since = state.leaving_since.emplace(seen.record.node, state.now).first->second;
  // To the nearest tick: it begins just after one, and would end nearly a tick late.
  return state.now - since + state.settings.tick / 2 >= deadline;
}

// An array has its fence, had one, or is being asked for it; or its pods are asked to leave, which the taint
// comes before. Not if the node was well since: what begins then is another failover.
bool IsBegun(const State& state, const Assessment& seen) {
  const auto& record = seen.record;
  const auto* object = state.cluster.FindNode(NameOf(record.node));
  const bool asks_pods = record.graceful && object && object->taint == record.node.value();
  const auto is_asked = [&](const auto& entry) {
    return state.outbox.IsWaiting(CallKey::ForFenceOf(entry.first, record.node));
  };
  const bool over = state.came_back.contains(record.node) && !IsGone(state, seen);
  return (!over && (asks_pods || WasFenced(seen))) ||
         std::any_of(record.volumes.begin(), record.volumes.end(), is_asked);
}

// It was decided before the record was written, which may have taken long; or the arrays were away since, or
// another leader decided. While no array could fence it nobody need be asked.
Permission AskAgain(State& state, const Assessment& seen) {
  const auto& record = seen.record;
  const bool can_fence = std::any_of(record.volumes.begin(), record.volumes.end(),
                                     [&](const auto& entry) { return state.evidence.ArrayUp(entry.first); });
  const bool due = seen.leaving || (seen.acting && can_fence);
  if (!due || record.is_manual() || state.settings.dry_run || IsBegun(state, seen)) return Permission::kGiven;
  const auto permission = AskToBegin(state, record.node, seen.classification, record.volumes);
  if (permission != Permission::kGiven) return permission;
  state.came_back.erase(record.node);
  state.limits.NoteDecision(record.node, state.now);
  return permission;
}

// A pod that is deleted and still there, for a finalizer, may have its replacement already, or keep it away.
bool IsReplaced(const std::vector<const Pod*>& pods) {
  const auto runs = [](const Pod* pod) { return pod->running; };
  const auto runs_or_over = [](const Pod* pod) { return pod->running || pod->deleted; };
  return pods.empty() ||
         (std::all_of(pods.begin(), pods.end(), runs_or_over) && std::any_of(pods.begin(), pods.end(), runs));
}

// A person may have fenced a node that was alive. That it is dead now is evidence alone, and neither the
// other replicas nor the API server were asked about it. So Kubernetes has to have lost it, too, and nobody
// may have forbidden what is done on evidence.
bool IsDeathBelieved(const State& state, const Assessment& seen) {
  if (!seen.record.is_manual()) return seen.death_decided;
  const auto* object = state.cluster.FindNode(NameOf(seen.record.node));
  return seen.signals.kubelet == Kubelet::kNotReady && !state.settings.paused && !state.settings.dry_run &&
         !(object && object->exempt);
}

bool LooksDead(const Assessment& seen) {
  return seen.classification.response == Response::kFence && seen.signals.network != Network::kArrives &&
         seen.signals.storage == Storage::kSilent;
}

// No fence keeps a pod without a volume from doing its work, so that it could run twice. So it goes only
// while nothing shows that its node lives, which also ends when the node is back.
bool IsDeadAndFenced(const State& state, const Assessment& seen) {
  const bool fenced = std::any_of(seen.awaited.begin(), seen.awaited.end(),
                                  [](const auto& entry) { return !entry.second.empty(); });
  return LooksDead(seen) && fenced && IsDeathBelieved(state, seen) &&
         UnconfirmedArrays(state, seen).empty() && state.IsCurrent(seen.record.node);
}

// Asked only where a pod without a volume would go, and not in a dry run, which leaves the record as it is.
// Once, as what the others say holds for a second, and the pod may take longer to go.
bool IsDeathDecided(State& state, const Assessment& seen) {
  const NodeId& node = seen.record.node;
  if (!LooksDead(seen)) state.decided_dead.erase(node);
  if (!IsAnotherDecision(seen) || state.decided_dead.contains(node)) return true;
  const auto stays = [](const Pod* pod) { return !pod->deleted; };
  if (state.settings.dry_run || !LooksDead(seen) || std::ranges::none_of(seen.plan.beside, stays) ||
      !MayBegin(state, node, seen.classification, seen.record.volumes))
    return false;
  state.decided_dead.insert(node);
  state.limits.NoteDecision(node, state.now);
  return true;
}

bool DoAllRun(const State& state, const VolumesByArray& volumes) {
  for (const auto& [array, some] : volumes)
    for (const auto& volume : some)
      if (!IsReplaced(state.cluster.PodsOf(volume))) return false;
  return true;
}

// A person means the machine: its pods go by its name, whatever it calls itself now. A NodeFence of the
// machine itself leaves them to that of the node that it is.
Plan PlanOf(const State& state, const Assessment& seen, bool path_lost) {
  const auto& record = seen.record;
  if (record.requested_by == kByMachine) return state.PlanForMachine(record.node);
  const bool person = IsOfMachine(record) && !seen.lifting;
  if (person && !IsMachineId(record.node)) return PlanMove(state.cluster, state.settings, record.node);
  // A path that is lost to one array moves the pods of that array alone; the others have nothing to fear.
  const bool part = seen.leaving && path_lost;
  // What only evidence asks for, of a node that may work, is done only where it helps.
  const bool works = !record.is_manual() && seen.classification.alive;
  return state.PlanFor(record.node, part ? seen.signals.lost : std::set<ArrayId>(), record.volumes, works);
}

}  // namespace

Assessment AssessNode(State& state, const NodeFence& record) {
  Assessment seen;
  seen.record = record;
  seen.signals = state.evidence.SignalsOf(record.node, state.now);
  seen.classification = Classify(seen.signals, state.settings);
  seen.lifting = WantsLifting(state, record);
  const bool manual = record.is_manual() && !seen.lifting;
  const bool path_lost = seen.classification.response == Response::kAskToLeave;
  seen.leaving = record.graceful && (manual || path_lost);
  seen.plan = PlanOf(state, seen, path_lost && !manual);
  seen.fences = state.arrays.FencesOf(record.node);
  seen.closes_machine = manual && IsOfMachine(record);
  // What was fenced once and is gone is fenced again, should its array have forgotten that: the leader may
  // have started since, and would have no other reason to.
  const bool again = !record.generations.empty() && IsGone(state, seen);
  seen.acting = (manual && !seen.leaving) || again || seen.classification.response == Response::kFence ||
                IsGraceOver(state, seen);
  if (!record.is_manual() && WasFenced(seen) && seen.signals.network == Network::kArrives &&
      seen.classification.response == Response::kNothing)
    state.came_back.insert(record.node);
  seen.permission = AskAgain(state, seen);
  // What was fenced is carried on and lifted meanwhile.
  if (seen.permission == Permission::kRefused || (seen.permission == Permission::kAwaited && WasFenced(seen)))
    seen.acting = seen.leaving = false;
  // Where there is no reason to fence any more, only arrays that may have a fence matter.
  for (const auto& entry : record.volumes)
    if (state.arrays.IsConfigured(entry.first) && (seen.acting || !record.unasked.contains(entry.first)))
      seen.awaited.insert(entry);
  seen.death_decided = IsDeathDecided(state, seen);
  return seen;
}

bool IsAnotherDecision(const Assessment& seen) {
  const auto what = seen.classification.what;
  const bool same = seen.record.cause == what || (SaysDead(seen.record.cause) && SaysDead(what));
  return !seen.record.is_manual() && seen.classification.response == Response::kFence && !same;
}

Phase PhaseOf(const State& state, const Assessment& seen) {
  if (!seen.acting && seen.fences.empty())
    return seen.record.graceful ? Phase::kLeaving : Phase::kReassessing;
  // A person's fence that no array has confirmed, and for which none is left to ask, is in force nowhere.
  const bool nobody_fences = seen.closes_machine && seen.awaited.empty() && !seen.record.volumes.empty() &&
                             seen.record.generations.empty();
  if (seen.acting && (nobody_fences || !UnconfirmedArrays(state, seen).empty())) return Phase::kFencing;
  if (!PodsToDelete(state, seen).empty()) return Phase::kEvacuating;
  if (!DoAllRun(state, seen.awaited)) return Phase::kReplacing;
  if (seen.signals.network != Network::kArrives) return Phase::kAwaitingNode;
  return seen.acting ? Phase::kMoved : Phase::kCleaning;
}

bool WantsLifting(const State& state, const NodeFence& record) {
  if (record.deleting) return true;
  const auto* object = state.cluster.FindNode(NameOf(record.node));
  const auto fences = state.FencesOfMachine(record.node);
  // What a person put at an array stays when the taint goes.
  const bool asked_here =
      std::any_of(fences.begin(), fences.end(), [](const auto& entry) { return entry.second.manual; });
  if (record.requested_by == kByTaint) return (!object || !object->out_of_service) && !asked_here;
  return record.requested_by == kByMachine && fences.empty();
}

bool IsByPerson(const NodeFence& record) { return IsOfMachine(record) && record.requested_by != kByTaint; }

bool IsOfMachine(const NodeFence& record) { return record.is_manual() && record.requested_by != kByMachine; }

std::vector<ArrayId> UnconfirmedArrays(const State& state, const Assessment& seen) {
  std::vector<ArrayId> arrays;
  for (const auto& entry : seen.awaited) {
    const bool closed = !seen.closes_machine || state.arrays.IsClosed(entry.first, NameOf(seen.record.node));
    if (!closed || !IsFenced(seen, {entry})) arrays.push_back(entry.first);
  }
  return arrays;
}

bool WasFenced(const Assessment& seen) { return !seen.fences.empty() || !seen.record.generations.empty(); }

bool IsFenced(const Assessment& seen, const VolumesByArray& volumes) {
  return std::all_of(volumes.begin(), volumes.end(), [&](const auto& entry) {
    const auto found = seen.fences.find(entry.first);
    return found != seen.fences.end() && Covers(found->second.volumes, entry.second);
  });
}

std::vector<const Pod*> PodsToDelete(const State& state, const Assessment& seen) {
  std::vector<const Pod*> pods;
  if (IsDeadAndFenced(state, seen))
    std::copy_if(seen.plan.beside.begin(), seen.plan.beside.end(), std::back_inserter(pods),
                 [](const Pod* pod) { return !pod->deleted; });
  std::copy_if(seen.plan.move.begin(), seen.plan.move.end(), std::back_inserter(pods), [&](const Pod* pod) {
    return !pod->deleted && !pod->volumes.empty() && IsFenced(seen, pod->volumes) &&
           IsWholeMachineCut(state, seen.record.node, pod->volumes);
  });
  return pods;
}

bool IsWholeMachineCut(const State& state, const NodeId& node, const VolumesByArray& volumes) {
  return state.IsCurrent(node) || std::all_of(volumes.begin(), volumes.end(), [&](const auto& entry) {
           return state.arrays.IsClosed(entry.first, NameOf(node));
         });
}

void AddToRecord(const State& state, const VolumesByArray& volumes, NodeFence& record) {
  for (const auto& [array, some] : volumes) {
    if (!record.volumes.contains(array) && !record.generations.contains(array)) record.unasked.insert(array);
    record.volumes[array].insert(some.begin(), some.end());
  }
  std::erase_if(record.unasked, [&](const ArrayId& array) { return state.evidence.ArrayUp(array); });
}

bool IsGone(const State& state, const Assessment& seen) {
  const NodeId& node = seen.record.node;
  return (!state.cluster.FindNode(NameOf(node)) || !state.IsCurrent(node)) &&
         seen.signals.network != Network::kArrives;
}

bool IsUnknown(const State& state, const NodeFence& record) {
  const NodeId& node = record.node;
  const auto* object = state.cluster.FindNode(NameOf(node));
  // One with volumes was decided about by a leader that knew it, even if the present one started later and
  // all traces are gone.
  const bool named = object && (object->node_id == node || IsMachineId(node));
  return record.is_manual() && record.volumes.empty() && !state.evidence.nodes().contains(node) &&
         state.arrays.FencesOf(node).empty() && !named;
}

}  // namespace lunkeeper::fencing
