#include "fencing/core/reconcile.h"

#include <algorithm>

#include "fencing/core/eligibility.h"
#include "fencing/core/words.h"

namespace lunkeeper::fencing {
namespace {

// One NodeFence at one entry.
struct ReconcileInput {
  NodeFence record;  // as it is stored
  Signals signals;
  Classification classification;
  Plan plan;
  std::map<ArrayId, ArrayFence> fences;  // in force
  bool lifting = false;                  // someone wants it lifted
  bool acting = false;                   // there is reason to fence, now
};

bool Lifting(const State& state, const NodeFence& record) {
  if (record.deleting) return true;
  const auto* object = state.cluster.FindNode(NameOf(record.node));
  return record.requested_by == kByTaint && object && !object->out_of_service;
}

bool DrainIsOver(State& state, const ReconcileInput& of) {
  if (!of.record.graceful || of.classification.response != Response::kDrain) return false;
  const auto since = state.draining_since.emplace(of.record.node, state.now).first->second;
  // To the nearest tick: it begins just after one, and would end nearly a tick late.
  return state.now - since + state.settings.tick / 2 >= state.settings.graceful_deadline;
}

// It will not come back as what it was: its object is deleted, or another life has its name.
bool IsGone(const State& state, const NodeId& node, const Signals& signals) {
  return (!state.cluster.FindNode(NameOf(node)) || !state.IsCurrent(node)) &&
         signals.network != Network::kArrives;
}

ReconcileInput AssessNode(State& state, const NodeFence& record) {
  ReconcileInput result;
  result.record = record;
  result.signals = state.evidence.Look(record.node, state.now);
  result.classification = Classify(result.signals, state.settings);
  const bool drain = record.graceful && result.classification.response == Response::kDrain;
  result.plan = state.PlanFor(record.node, drain ? result.signals.lost : std::set<ArrayId>());
  result.fences = state.arrays.Of(record.node);
  result.lifting = Lifting(state, record);
  const bool manual = !record.requested_by.empty() && !result.lifting;
  // What was fenced once and is gone is fenced again, should its array have forgotten that: who leads now may
  // never have heard of it, and would have no other reason to.
  const bool again = !record.generations.empty() && IsGone(state, record.node, result.signals);
  result.acting =
      manual || again || result.classification.response == Response::kFence || DrainIsOver(state, result);
  return result;
}

bool IsFenced(const ReconcileInput& of, const VolumesByArray& volumes) {
  return std::all_of(volumes.begin(), volumes.end(), [&](const auto& entry) {
    const auto found = of.fences.find(entry.first);
    return found != of.fences.end() && Covers(found->second.volumes, entry.second);
  });
}

// The pods that are still to go: fenced, or landed on the fenced node.
std::vector<const Pod*> ToDelete(const ReconcileInput& of) {
  std::vector<const Pod*> pods;
  std::copy_if(of.plan.move.begin(), of.plan.move.end(), std::back_inserter(pods),
               [&](const Pod* pod) { return IsFenced(of, pod->volumes); });
  return pods;
}

bool Put(State& state, NodeFence record) {
  const auto key = "record " + record.node.value();
  return state.outbox.Call(key, PutNodeFence{std::move(record)}, state.now);
}

// What is to be fenced is recorded before it is. False: it is not yet.
bool IsRecorded(State& state, const ReconcileInput& of) {
  auto record = of.record;
  if (of.acting) {
    auto missing = of.plan.volumes;
    if (!record.requested_by.empty())
      for (const auto& array : state.arrays.Ids()) missing[array];  // closed to new grants, whatever it holds
    if (of.classification.response == Response::kFence)
      for (const auto& [array, volumes] : state.WantedFrom(record.node))
        missing[array].insert(volumes.begin(), volumes.end());
    for (const auto& [array, volumes] : missing) record.volumes[array].insert(volumes.begin(), volumes.end());
  }
  if (record.volumes == of.record.volumes) return true;
  Put(state, std::move(record));
  return false;
}

void FenceArrays(State& state, const ReconcileInput& of) {
  if (!of.acting) return;
  for (const auto& [array, volumes] : of.record.volumes) {
    const auto term = state.arrays.TermOf(array);
    if (term == 0 || !state.evidence.ArrayUp(array) || IsFenced(of, {{array, volumes}})) continue;
    state.outbox.Call("fence " + array.value() + " " + of.record.node.value(),
                      FenceNode{array, term, of.record.node, volumes}, state.now);
  }
}

// True: nothing new is scheduled there, or there is no such node.
bool IsTainted(State& state, const NodeId& node) {
  const auto* object = state.cluster.FindNode(NameOf(node));
  if (!object || !state.IsCurrent(node) || object->taint == node.value()) return true;
  state.outbox.Call("taint " + object->name.value(), SetTaint{object->name, object->version, node.value()},
                    state.now);
  return false;
}

// A pod may have been started by a machine which had this name before. That one has to let go first; its
// volumes are asked for.
bool IsHeldByNamesake(State& state, const NodeId& node, const Pod& pod) {
  bool held = false;
  for (const auto& [array, volumes] : pod.volumes)
    for (const auto& volume : volumes) {
      const auto holder = state.evidence.HeldByNamesake(node, array, volume);
      if (holder.empty()) continue;
      state.wanted[volume] = {array, holder, state.now};
      held = true;
    }
  return held;
}

void Evacuate(State& state, const ReconcileInput& of) {
  if (of.fences.empty() || !IsTainted(state, of.record.node)) return;
  for (const auto* pod : ToDelete(of))
    if (!IsHeldByNamesake(state, of.record.node, *pod))
      state.outbox.Call("delete " + pod->uid.value(), DeletePod{pod->id, pod->uid, Grace::kNone}, state.now);
}

// To leave, by an ordinary deletion, which takes what time it needs.
void Ask(State& state, const Pod& pod) {
  if (!pod.deleting)
    state.outbox.Call("ask " + pod.uid.value(), DeletePod{pod.id, pod.uid, Grace::kOrdinary}, state.now);
}

void Drain(State& state, const ReconcileInput& of) {
  if (!of.record.graceful || of.classification.response != Response::kDrain || !of.fences.empty()) return;
  if (!IsTainted(state, of.record.node)) return;
  for (const auto* pod : of.plan.move) Ask(state, *pod);
}

// Pods whose volumes are fenced, and which nobody moves: left alone until another node asked for a volume, or
// opted out since. What they have here fails for good, and the node is not clean before they end.
void Dismiss(State& state, const ReconcileInput& of) {
  if (of.acting || of.signals.network != Network::kArrives || !state.IsCurrent(of.record.node)) return;
  const auto& present = state.evidence.nodes().at(of.record.node).heartbeat.present;
  const auto is_cut_off = [&](const Pod& pod) {
    for (const auto& [array, fence] : of.fences)
      if (const auto used = pod.volumes.find(array); used != pod.volumes.end())
        for (const auto& volume : used->second)
          if (fence.volumes.contains(volume) && present.contains(volume)) return true;
    return false;
  };
  for (const auto* pod : state.cluster.PodsOn(NameOf(of.record.node)))
    if (is_cut_off(*pod)) Ask(state, *pod);
}

void Tell(State& state, const ReconcileInput& of) {
  const auto& known = state.evidence.nodes();
  const auto node = known.find(of.record.node);
  for (const auto& [array, fence] : of.fences) {
    if (node != known.end()) {
      const auto heard = node->second.heartbeat.known.find(array);
      if (heard != node->second.heartbeat.known.end() && heard->second >= fence.generation) continue;
    }
    const auto key = "tell " + array.value() + " " + of.record.node.value();
    if (state.outbox.Pace(key, 2 * state.settings.retry, state.now))
      state.outbox.Send(Notify{of.record.node, array, fence});
  }
}

// Array by array, once its pods are gone and nothing of its volumes is left on the node.
void Lift(State& state, const ReconcileInput& of) {
  if (of.acting || of.classification.response != Response::kNothing) return;
  const auto pods = ToDelete(of);
  for (const auto& [array, fence] : of.fences) {
    const bool evacuated =
        std::none_of(pods.begin(), pods.end(), [&](const Pod* pod) { return pod->volumes.contains(array); });
    const auto term = state.arrays.TermOf(array);
    if (!evacuated || term == 0 || !state.evidence.Reaches(of.record.node, array, state.now) ||
        !state.evidence.IsClean(of.record.node, fence.volumes, array, fence.generation, state.now))
      continue;
    state.outbox.Call("fence " + array.value() + " " + of.record.node.value(),
                      UnfenceNode{array, term, of.record.node, fence.generation}, state.now);
  }
}

// Of what was fenced once. Volumes that never were may well be in use, and so may those that were granted to
// the node anew, after their fence was lifted.
bool NothingLeft(const State& state, const ReconcileInput& of) {
  const auto& node = of.record.node;
  return std::all_of(of.record.generations.begin(), of.record.generations.end(), [&](const auto& entry) {
    const auto& array = entry.first;
    const auto recorded = of.record.volumes.find(array);
    if (recorded == of.record.volumes.end()) return true;
    VolumeSet volumes;
    for (const auto& volume : recorded->second)
      if (!state.evidence.Holds(node, array, volume)) volumes.insert(volumes.end(), volume);
    return state.evidence.IsClean(node, volumes, array, 0, state.now);
  });
}

bool MayClose(const State& state, const ReconcileInput& of) {
  for (const auto& [array, volumes] : of.record.volumes)
    if (!state.arrays.IsKnown(array) || !state.evidence.ArrayUp(array) ||
        state.outbox.IsWaiting("fence " + array.value() + " " + of.record.node.value()))
      return false;
  if (IsGone(state, of.record.node, of.signals))
    return ToDelete(of).empty() && IsFenced(of, of.record.volumes);
  if (of.acting || !of.fences.empty()) return false;
  for (const auto& entry : of.record.volumes)
    if (!of.lifting && !state.evidence.Reaches(of.record.node, entry.first, state.now)) return false;
  if (of.record.generations.empty()) return of.lifting || of.classification.response == Response::kNothing;
  return of.classification.response == Response::kNothing && NothingLeft(state, of);
}

void Remove(State& state, const NodeFence& record) {
  // Not seen yet: to write it again tells whether it is there at all.
  if (record.uid.empty()) return static_cast<void>(Put(state, record));
  state.outbox.Call("remove " + record.uid.value(), RemoveNodeFence{record.node, record.uid, record.version},
                    state.now);
}

// Asked for by hand, and nobody has ever heard of it: not by heartbeat, grant, fence or object. A node that
// was decided about was known to who decided, even if whoever leads now started later and all traces are
// gone.
bool IsUnknown(const State& state, const NodeFence& record) {
  const NodeId& node = record.node;
  const auto* object = state.cluster.FindNode(NameOf(node));
  return !record.requested_by.empty() && record.volumes.empty() && !state.evidence.nodes().contains(node) &&
         state.arrays.Of(node).empty() && !(object && object->instance == node);
}

void Refuse(State& state, const NodeFence& record) {
  state.ReportOnce(ReportKind::kRefused, record.node,
                   "not fenced: there is no such node; delete this NodeFence");
  if (record.deleting) return Remove(state, record);
  if (record.phase == kPhaseUnknown) return;
  auto refused = record;
  refused.phase = kPhaseUnknown;
  Put(state, std::move(refused));
}

// True: it is over, and being put away. The taint goes when the record is gone.
bool Close(State& state, const ReconcileInput& of) {
  if (!MayClose(state, of)) return false;
  Remove(state, of.record);
  return true;
}

bool AllRun(const State& state, const VolumesByArray& volumes) {
  for (const auto& [array, some] : volumes)
    for (const auto& volume : some)
      for (const auto* pod : state.cluster.PodsOf(volume))
        if (!pod->running) return false;
  return true;
}

std::string Phase(const State& state, const ReconcileInput& of) {
  if (!of.acting && of.fences.empty()) return of.record.graceful ? kPhaseAsking : "looking again";
  if (of.acting && !IsFenced(of, of.record.volumes)) return kPhaseFencing;
  if (!ToDelete(of).empty()) return "deleting its pods";
  if (!AllRun(state, of.record.volumes)) return "waiting for the replacements";
  if (of.signals.network != Network::kArrives) return "moved; waiting for the node";
  return of.acting ? "moved" : "waiting for the node to be clean";
}

void Describe(State& state, const ReconcileInput& of) {
  auto record = of.record;
  // A generation that is no longer in force stays recorded: it was once, so something may be left on the
  // node.
  for (const auto& [array, fence] : of.fences) record.generations[array] = fence.generation;
  record.phase = Phase(state, of);
  state.ReportOnce(ReportKind::kProgress, record.node, record.phase);
  if (record != of.record) Put(state, std::move(record));
}

}  // namespace

void Reconcile(State& state, const NodeId& node) {
  const auto* record = state.cluster.FindFence(node);
  if (!record || state.settings.dry_run) return;
  if (IsUnknown(state, *record)) return Refuse(state, *record);
  const auto of = AssessNode(state, *record);
  if (of.classification.response != Response::kDrain) state.draining_since.erase(node);
  if (!IsRecorded(state, of)) return;
  FenceArrays(state, of);
  Evacuate(state, of);
  Drain(state, of);
  Dismiss(state, of);
  Tell(state, of);
  Lift(state, of);
  if (!Close(state, of)) Describe(state, of);
}

}  // namespace lunkeeper::fencing
