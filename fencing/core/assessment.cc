#include "fencing/core/assessment.h"

#include <algorithm>
#include <iterator>

#include "fencing/core/words.h"

namespace lunkeeper::fencing {
namespace {

bool WantsLifting(const State& state, const NodeFence& record) {
  if (record.deleting) return true;
  const auto* object = state.cluster.FindNode(NameOf(record.node));
  return record.requested_by == kByTaint && object && !object->out_of_service;
}

// Each replica counts the deadline from when it first saw the pods being asked. A new leader that has not
// seen it begin gives the pods the whole time again, which costs a second and needs no clock in the record.
bool IsGraceOver(State& state, const Assessment& seen) {
  if (!seen.record.graceful || seen.classification.response != Response::kAskToLeave) return false;
  const auto since = state.leaving_since.emplace(seen.record.node, state.now).first->second;
  // To the nearest tick: it begins just after one, and would end nearly a tick late.
  return state.now - since + state.settings.tick / 2 >= state.settings.graceful_deadline;
}

bool DoAllRun(const State& state, const VolumesByArray& volumes) {
  for (const auto& [array, some] : volumes)
    for (const auto& volume : some)
      for (const auto* pod : state.cluster.PodsOf(volume))
        if (!pod->running) return false;
  return true;
}

}  // namespace

Assessment AssessNode(State& state, const NodeFence& record) {
  Assessment seen;
  seen.record = record;
  seen.signals = state.evidence.SignalsOf(record.node, state.now);
  seen.classification = Classify(seen.signals, state.settings);
  // A path that is lost to one array moves the pods of that array alone; the others have nothing to fear.
  const bool leaving = record.graceful && seen.classification.response == Response::kAskToLeave;
  seen.plan = state.PlanFor(record.node, leaving ? seen.signals.lost : std::set<ArrayId>());
  seen.fences = state.arrays.FencesOf(record.node);
  seen.lifting = WantsLifting(state, record);
  const bool manual = !record.requested_by.empty() && !seen.lifting;
  // What was fenced once and is gone is fenced again, should its array have forgotten that: the leader may
  // have started since, and would have no other reason to.
  const bool again = !record.generations.empty() && IsGone(state, seen);
  seen.acting =
      manual || again || seen.classification.response == Response::kFence || IsGraceOver(state, seen);
  return seen;
}

Phase PhaseOf(const State& state, const Assessment& seen) {
  if (!seen.acting && seen.fences.empty())
    return seen.record.graceful ? Phase::kLeaving : Phase::kReassessing;
  if (seen.acting && !IsFenced(seen, seen.record.volumes)) return Phase::kFencing;
  if (!PodsToDelete(seen).empty()) return Phase::kEvacuating;
  if (!DoAllRun(state, seen.record.volumes)) return Phase::kReplacing;
  if (seen.signals.network != Network::kArrives) return Phase::kAwaitingNode;
  return seen.acting ? Phase::kMoved : Phase::kCleaning;
}

bool IsFenced(const Assessment& seen, const VolumesByArray& volumes) {
  return std::all_of(volumes.begin(), volumes.end(), [&](const auto& entry) {
    const auto found = seen.fences.find(entry.first);
    return found != seen.fences.end() && Covers(found->second.volumes, entry.second);
  });
}

std::vector<const Pod*> PodsToDelete(const Assessment& seen) {
  std::vector<const Pod*> pods;
  std::copy_if(seen.plan.move.begin(), seen.plan.move.end(), std::back_inserter(pods),
               [&](const Pod* pod) { return IsFenced(seen, pod->volumes); });
  return pods;
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
  return !record.requested_by.empty() && record.volumes.empty() && !state.evidence.nodes().contains(node) &&
         state.arrays.FencesOf(node).empty() && !(object && object->node_id == node);
}

}  // namespace lunkeeper::fencing
