// Reconcile assesses one node, computes the phase of its failover, and runs the steps of that phase. A step
// sends calls through the outbox and returns; what they achieve comes back as events, and the next Reconcile
// sees it. No step waits, and none depends on another having been run before it in the same process, so that
// a crash between any two calls needs no undoing: the next leader reads the record and goes on.
//
// Two orders are what makes it safe. Volumes are recorded before they are fenced, so that a fence without a
// record can only be one whose record was lost. And pods are deleted by force only after the array has
// confirmed the fence: from then on no write of the old pod can land beside those of its replacement.

#include "fencing/core/reconcile.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/check.h"
#include "fencing/core/assessment.h"
#include "fencing/core/evacuate.h"
#include "fencing/core/instances.h"
#include "fencing/core/words.h"

namespace lunkeeper::fencing {
namespace {

void WriteRecord(State& state, NodeFence record) {
  const auto key = CallKey::ForRecordOf(record.node);
  state.outbox.CallOnce(key, PutNodeFence{std::move(record)}, state.now);
}

// What is to be fenced now, beyond what is recorded.
VolumesByArray VolumesToFence(const State& state, const Assessment& seen) {
  auto volumes = seen.plan.volumes;
  // A fence that somebody asked for closes every array to new grants, and takes all that the node holds, of
  // pods that nobody moves as well.
  if (seen.closes_machine) {
    for (const auto& array : state.arrays.Ids()) volumes[array];
    if (const auto known = state.evidence.nodes().find(seen.record.node);
        known != state.evidence.nodes().end())
      for (const auto& [array, held] : known->second.HeldVolumes())
        volumes[array].insert(held.begin(), held.end());
  }
  if (seen.classification.response == Response::kFence)
    for (const auto& [array, wanted] : state.WantedFrom(seen.record.node))
      volumes[array].insert(wanted.begin(), wanted.end());
  return volumes;
}

// True: all that is to be fenced is in the stored record, or the rest may not be fenced. False: it is being
// written, and nothing else may be done before.
bool IsRecorded(State& state, const Assessment& seen) {
  // Whatever kept it back before there was a record does so no more.
  if (seen.permission == Permission::kGiven && !IsAnotherDecision(seen))
    state.WithdrawReport(ReportKind::kRefused, seen.record.node);
  if (!seen.acting) return true;
  auto record = seen.record;
  AddToRecord(state, VolumesToFence(state, seen), record);
  if (record == seen.record) return true;
  if (IsAnotherDecision(seen) && record.volumes != seen.record.volumes) {
    if (MayBegin(state, record.node, seen.classification, record.volumes)) {
      state.limits.NoteDecision(record.node, state.now);
    } else {
      record = seen.record;
      // An array that is back is asked all the same.
      AddToRecord(state, {}, record);
      if (record == seen.record) return true;
    }
  }
  WriteRecord(state, std::move(record));
  return false;
}

void FenceArrays(State& state, const Assessment& seen) {
  const NodeId& node = seen.record.node;
  for (const auto& [array, volumes] : seen.record.volumes) {
    const auto term = state.arrays.TermOf(array);
    if (term == 0 || !state.evidence.ArrayUp(array) || IsFenced(seen, {{array, volumes}})) continue;
    state.outbox.CallOnce(CallKey::ForFenceOf(array, node), FenceNode{array, term, node, volumes}, state.now);
  }
}

// A person means the machine, which could come back as another instance.
void CloseMachine(State& state, const Assessment& seen) {
  if (!seen.closes_machine) return;
  const NodeId machine = MachineId(MachineOf(seen.record.node));
  for (const auto& [array, volumes] : seen.record.volumes) {
    const auto term = state.arrays.TermOf(array);
    if (term == 0 || !state.evidence.ArrayUp(array) || state.arrays.IsClosed(array, NameOf(machine)))
      continue;
    state.outbox.CallOnce(CallKey::ForFenceOf(array, machine), FenceNode{array, term, machine, {}},
                          state.now);
  }
}

// Somebody wants this machine closed whose NodeFence is not `lifted`.
bool IsClosedByAnother(const State& state, const NodeFence& lifted) {
  for (const auto* entry : InstancesOf(state.cluster.fences(), NameOf(lifted.node)))
    if (entry->first != lifted.node && IsOfMachine(entry->second) && !entry->second.deleting &&
        entry->second.phase != Phase::kRefused)
      return true;
  return false;
}

// True: the person who wants this lifted wants the machine opened, and nobody wants it closed.
bool MayOpenMachine(const State& state, const Assessment& seen) {
  const bool asked =
      IsOfMachine(seen.record) ? seen.lifting : seen.record.is_manual() && seen.record.deleting;
  return asked && !IsClosedByAnother(state, seen.record);
}

// At once: what each node of it had has ended for good, and one that is not clean yet has a fence of its own.
void OpenMachine(State& state, const Assessment& seen) {
  if (!MayOpenMachine(state, seen)) return;
  const NodeId machine = MachineId(MachineOf(seen.record.node));
  for (const auto& [array, fence] : state.arrays.FencesOf(machine)) {
    const auto term = state.arrays.TermOf(array);
    // A generation of 0 is an array's mistake, and no reason to end this leader.
    if (term == 0 || fence.generation == 0 || !state.evidence.ArrayUp(array)) continue;
    state.outbox.CallOnce(CallKey::ForFenceOf(array, machine),
                          UnfenceNode{array, term, machine, fence.generation}, state.now);
  }
}

bool KnowsOf(const State& state, const NodeId& id, const ArrayId& array, const ArrayFence& fence) {
  const auto node = state.evidence.nodes().find(id);
  if (node == state.evidence.nodes().end()) return false;
  const auto known = node->second.heartbeat.known.find(array);
  return known != node->second.heartbeat.known.end() && known->second >= fence.generation;
}

// Until the node's heartbeats say that it knows of the fence.
void NotifyNode(State& state, const Assessment& seen) {
  const NodeId& node = seen.record.node;
  for (const auto& [array, fence] : seen.fences) {
    if (KnowsOf(state, node, array, fence)) continue;
    const CallKey key{.kind = CallKey::Kind::kNotify, .array = array, .node = node};
    if (state.outbox.TakeTurn(key, 2 * state.settings.retry, state.now))
      state.outbox.SendAction(Notify{node, array, fence});
  }
}

// The node says, knowing of this very fence, that nothing of the fenced volumes is left on it.
bool IsCleanOf(const State& state, const NodeId& node, const ArrayId& array, const ArrayFence& fence) {
  return state.evidence.IsClean(node, fence.volumes, array, fence.generation, state.now);
}

void UnfenceArray(State& state, const NodeId& node, const ArrayId& array, const ArrayFence& fence) {
  const auto term = state.arrays.TermOf(array);
  LK_CHECK(term != 0, "only the holder of the array's term unfences");
  LK_CHECK(fence.generation != 0, "an unfence names the generation of the fence that it lifts");
  LK_CHECK(IsCleanOf(state, node, array, fence), "no node is unfenced while something is left on it");
  state.outbox.CallOnce(CallKey::ForFenceOf(array, node), UnfenceNode{array, term, node, fence.generation},
                        state.now);
}

// Array by array, once its pods are gone and nothing of its volumes is left on the node.
void LiftFences(State& state, const Assessment& seen) {
  if (seen.acting || seen.classification.response != Response::kNothing) return;
  const NodeId& node = seen.record.node;
  const auto pods = PodsToDelete(state, seen);
  for (const auto& [array, fence] : seen.fences) {
    const bool evacuated =
        std::none_of(pods.begin(), pods.end(), [&](const Pod* pod) { return pod->volumes.contains(array); });
    // Generation 0 would be an array's mistake: no fence has it.
    // What a person put at the array is lifted there, or by deleting the NodeFence.
    const bool kept = fence.manual && !seen.record.deleting;
    // A volume that the array has yet to take, as its tgtd hangs, may be in use and is not among these.
    if (evacuated && !kept && fence.drained && state.arrays.TermOf(array) != 0 && fence.generation != 0 &&
        state.evidence.Reaches(node, array, state.now) && IsCleanOf(state, node, array, fence))
      UnfenceArray(state, node, array, fence);
  }
}

// Of what was fenced once. Volumes that never were may well be in use, and so may volumes that were granted
// to the node anew, after their fence was lifted.
bool IsNothingLeft(const State& state, const Assessment& seen) {
  const auto& node = seen.record.node;
  return std::all_of(seen.record.generations.begin(), seen.record.generations.end(), [&](const auto& entry) {
    const auto& array = entry.first;
    const auto recorded = seen.record.volumes.find(array);
    if (recorded == seen.record.volumes.end()) return true;
    VolumeSet volumes;
    for (const auto& volume : recorded->second)
      if (!state.evidence.HoldsVolume(node, array, volume)) volumes.insert(volumes.end(), volume);
    return state.evidence.IsClean(node, volumes, array, 0, state.now);
  });
}

// What a fence or an unfence on its way will do is not known yet; nor is what an array that is down has.
bool AreArraysKnown(const State& state, const Assessment& seen) {
  return std::all_of(seen.awaited.begin(), seen.awaited.end(), [&](const auto& entry) {
    return state.arrays.IsKnown(entry.first) && state.evidence.ArrayUp(entry.first) &&
           !state.outbox.IsWaiting(CallKey::ForFenceOf(entry.first, seen.record.node)) &&
           !state.outbox.IsWaiting(CallKey::ForFenceOf(entry.first, MachineId(MachineOf(seen.record.node))));
  });
}

// The leader before may have fenced since a look from before this one's term.
bool IsSureOfArrays(const State& state, const Assessment& seen) {
  return std::all_of(seen.awaited.begin(), seen.awaited.end(),
                     [&](const auto& entry) { return state.arrays.IsSure(entry.first); });
}

// It came from the fence of its machine, its machine is another instance now, and a record that stays keeps
// that fence: a person's own, or one of the instance that there is.
bool IsReplaced(const State& state, const Assessment& seen) {
  if (seen.record.requested_by != kByMachine || !IsGone(state, seen)) return false;
  const auto records = InstancesOf(state.cluster.fences(), NameOf(seen.record.node));
  return std::any_of(records.begin(), records.end(), [&](const auto* entry) {
    const auto& [node, record] = *entry;
    return node != seen.record.node && record.is_manual() &&
           (IsOfMachine(record) || state.cluster.IsCurrent(node));
  });
}

bool MayClose(const State& state, const Assessment& seen) {
  if (!AreArraysKnown(state, seen)) return false;
  // The name stays closed for as long as a person wants it, also when there is no such node any more.
  if (seen.record.is_manual() && !seen.lifting && !IsReplaced(state, seen)) return false;
  const bool open = state.FencesOfMachine(seen.record.node).empty();
  if (!open && MayOpenMachine(state, seen)) return false;
  // Of one that may not begin after all nothing has been done. Decide begins it anew when it may.
  if (IsMachineId(seen.record.node) || (seen.permission == Permission::kRefused && !WasFenced(seen)))
    return IsSureOfArrays(state, seen);
  // Its fences stay at the arrays for good, and need no record any more.
  if (IsGone(state, seen)) return PodsToDelete(state, seen).empty() && IsFenced(seen, seen.awaited);
  if (seen.acting || !seen.fences.empty() || !IsSureOfArrays(state, seen)) return false;
  const bool well = seen.classification.response == Response::kNothing;
  const bool reaches = std::all_of(seen.awaited.begin(), seen.awaited.end(), [&](const auto& entry) {
    return state.evidence.Reaches(seen.record.node, entry.first, state.now);
  });
  if (!seen.lifting && !reaches) return false;
  if (seen.record.generations.empty()) return seen.lifting || well;
  return well && IsNothingLeft(state, seen);
}

// Not seen yet: to write it again tells whether it is there at all. The answer asks for its removal again, so
// while no watch tells its UID it would be written as fast as the API server answers.
void WriteToFind(State& state, const NodeFence& record) {
  const CallKey turn{.kind = CallKey::Kind::kRemoveRecord, .node = record.node};
  if (state.outbox.TakeTurn(turn, 2 * state.settings.retry, state.now)) WriteRecord(state, record);
}

void RemoveRecord(State& state, const NodeFence& record) {
  if (record.uid.empty()) return WriteToFind(state, record);
  const CallKey key{.kind = CallKey::Kind::kRemoveRecord, .uid = record.uid};
  state.outbox.CallOnce(key, RemoveNodeFence{record.node, record.uid, record.version, record.deleting},
                        state.now);
}

void RefuseRecord(State& state, const NodeFence& record) {
  state.ReportOnce({.kind = ReportKind::kRefused,
                    .node = record.node,
                    .text = "not fenced: there is no such node; delete this NodeFence",
                    .refusal = Refusal::kUnknownNode});
  if (record.deleting) return RemoveRecord(state, record);
  if (record.phase == Phase::kRefused) return;
  auto refused = record;
  refused.phase = Phase::kRefused;
  WriteRecord(state, std::move(refused));
}

// Of a person's fence: nobody can ask these arrays, and nobody knows what they still let through.
std::string DescribeRemovedArrays(const State& state, const Assessment& seen) {
  std::string text;
  if (!seen.closes_machine || !seen.acting) return text;
  for (const auto& [array, volumes] : seen.record.volumes)
    if (!state.arrays.IsConfigured(array) && !seen.record.generations.contains(array))
      text += "; not confirmed by array " + array.value() +
              ", which is not configured any more: the node may still write there";
  return text;
}

// For people: an array that is away shows why the arrays have not all confirmed, or why a fence that is to be
// lifted stays.
std::string DescribePhase(const State& state, const Assessment& seen, Phase phase) {
  std::string text = ToSentence(phase) + DescribeRemovedArrays(state, seen);
  std::vector<ArrayId> missing;
  if (phase == Phase::kFencing) missing = UnconfirmedArrays(state, seen);
  if (phase != Phase::kFencing && seen.lifting)
    for (const auto& entry : seen.awaited) missing.push_back(entry.first);
  for (const auto& array : missing)
    if (!state.evidence.ArrayUp(array)) text += "; waits for array " + array.value() + ", which is away";
  return text;
}

void RecordPhase(State& state, const Assessment& seen, Phase phase) {
  auto record = seen.record;
  // A generation that is no longer in force stays recorded: it was once, so something may be left on the
  // node.
  for (const auto& [array, fence] : seen.fences) record.generations[array] = fence.generation;
  record.phase = phase;
  state.ReportOnce({.kind = ReportKind::kProgress,
                    .node = record.node,
                    .text = DescribePhase(state, seen, phase),
                    .phase = phase});
  if (record != seen.record) WriteRecord(state, std::move(record));
}

// What is done in each phase, in this order; phase.h has the picture. A step that finds nothing to do does
// nothing, so a row says what may happen in its phase, and above all what may not: nothing is unfenced while
// there is reason to fence (Fencing, Moved), and no pod is deleted before a fence (Leaving, Reassessing).
// Graceful and manual fences go through the same rows; what is special about them is in AssessNode.
struct PhaseRow {
  using Step = void (*)(State&, const Assessment&);
  Phase phase;
  bool may_close;
  std::array<Step, 5> steps;
};

constexpr PhaseRow kPhaseRows[] = {
    {Phase::kLeaving, true, {AskPodsToLeave, AskCutOffPodsToLeave}},
    {Phase::kReassessing, true, {AskCutOffPodsToLeave}},
    // Past its deadline a graceful move still asks the pods, until the first array has confirmed.
    {Phase::kFencing, false, {CloseMachine, FenceArrays, DeleteFencedPods, AskPodsToLeave, NotifyNode}},
    {Phase::kEvacuating, false, {DeleteFencedPods, AskCutOffPodsToLeave, NotifyNode, LiftFences}},
    // DeleteFencedPods finds no pod in the rows below, but keeps the node tainted.
    {Phase::kReplacing, true, {DeleteFencedPods, AskCutOffPodsToLeave, NotifyNode, LiftFences}},
    {Phase::kMoved, false, {DeleteFencedPods, NotifyNode}},
    {Phase::kAwaitingNode, true, {DeleteFencedPods, NotifyNode}},
    {Phase::kCleaning, false, {DeleteFencedPods, AskCutOffPodsToLeave, NotifyNode, LiftFences}},
};

const PhaseRow& RowOf(Phase phase) {
  const auto* row = std::find_if(std::begin(kPhaseRows), std::end(kPhaseRows),
                                 [&](const PhaseRow& each) { return each.phase == phase; });
  LK_CHECK(row != std::end(kPhaseRows), "PhaseOf computes only phases that have a row");
  return *row;
}

// In a dry run nothing goes on by itself; what a person asked for is done, and what he wants lifted is
// lifted.
bool IsFrozen(State& state, const Assessment& seen) {
  if (!state.settings.dry_run || IsByPerson(seen.record) || (seen.lifting && !seen.acting)) return false;
  state.ReportOnce(
      {.kind = ReportKind::kRefused,
       .node = seen.record.node,
       .text = std::string("dry run: its failover is left as it is: ") + ToSentence(PhaseOf(state, seen)),
       .refusal = Refusal::kDryRun});
  return true;
}

}  // namespace

void Reconcile(State& state, const NodeId& node) {
  const auto* record = state.cluster.FindFence(node);
  if (!record) return;
  if (IsUnknown(state, *record)) return RefuseRecord(state, *record);
  const auto seen = AssessNode(state, *record);
  if (!seen.leaving) state.leaving_since.erase(node);
  if (IsFrozen(state, seen) || (seen.permission == Permission::kAwaited && !WasFenced(seen))) return;
  if (!IsRecorded(state, seen)) return;
  OpenMachine(state, seen);
  const Phase phase = PhaseOf(state, seen);
  const PhaseRow& row = RowOf(phase);
  for (const auto step : row.steps)
    if (step) step(state, seen);
  // The taint goes when the record is gone.
  if (row.may_close && MayClose(state, seen)) return RemoveRecord(state, seen.record);
  RecordPhase(state, seen, phase);
}

}  // namespace lunkeeper::fencing
