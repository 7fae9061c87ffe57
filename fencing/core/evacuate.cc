// Which pods go, and how: in the ordinary way where the node can still end them, and by force once the arrays
// have confirmed that nothing of theirs can land any more. The taint stands before the first of them goes.

#include "fencing/core/evacuate.h"

#include <algorithm>

#include "base/check.h"

namespace lunkeeper::fencing {
namespace {

// True: nothing new is scheduled there, or there is no such node. The taint stands before the first pod is
// deleted, or its replacement could be scheduled on the node that is fenced. A machine whose name is closed
// keeps a taint whatever it calls itself, though not one for each of its ids.
bool IsTainted(State& state, const Assessment& seen) {
  const NodeId& node = seen.record.node;
  const auto* object = state.cluster.FindNode(NameOf(node));
  if (!object || object->taint == node.value()) return true;
  const bool name_is_closed = seen.record.is_manual() && !seen.lifting;
  if (!state.IsCurrent(node) && (!name_is_closed || !object->taint.empty())) return true;
  state.outbox.CallOnce(CallKey::ForTaintOf(object->name),
                        SetTaint{object->name, object->version, node.value()}, state.now);
  return false;
}

// A pod may have been started by an earlier instance of the machine. That one has to release the volumes
// first, so they are asked for: its own failover follows.
bool IsHeldByOtherInstance(State& state, const NodeId& node, const Pod& pod) {
  bool held = false;
  for (const auto& [array, volumes] : pod.volumes)
    for (const auto& volume : volumes) {
      const auto holder = state.evidence.HeldByOtherInstance(node, array, volume);
      if (holder.empty()) continue;
      state.wanted[volume] = {array, holder, state.now};
      held = true;
    }
  return held;
}

// Asks the arrays' own state again, not the assessment, so that a mistake in one does not pass in the other.
bool AreFencesVerified(const State& state, const NodeId& node, const VolumesByArray& volumes) {
  const bool any =
      std::any_of(volumes.begin(), volumes.end(), [](const auto& entry) { return !entry.second.empty(); });
  return any && std::all_of(volumes.begin(), volumes.end(), [&](const auto& entry) {
           const auto* fence = state.arrays.Find(entry.first, node);
           // The pod may be another instance's: then it counts that the machine is closed as a whole.
           const bool own = state.IsCurrent(node) || state.arrays.IsClosed(entry.first, NameOf(node));
           return fence && own && state.arrays.IsSure(entry.first, node) &&
                  Covers(fence->volumes, entry.second);
         });
}

// A pod without a volume goes by those of its node's others: by then the arrays have given the node up. A
// fence that this leader has not seen in its own term is waited for, until the next look.
void DeleteByForce(State& state, const Assessment& seen, const Pod& pod) {
  const auto& fenced = pod.volumes.empty() ? seen.awaited : pod.volumes;
  if (!std::all_of(fenced.begin(), fenced.end(),
                   [&](const auto& entry) { return state.arrays.IsSure(entry.first, seen.record.node); }))
    return;
  LK_CHECK(AreFencesVerified(state, seen.record.node, fenced),
           "no pod is deleted by force before its array has confirmed the fence of all its volumes");
  state.outbox.CallOnce(CallKey::ForPod(CallKey::Kind::kDeletePod, pod.uid),
                        DeletePod{pod.id, pod.uid, Grace::kNone}, state.now);
}

// By an ordinary deletion, which takes what time the pod needs.
void AskToLeave(State& state, const Pod& pod) {
  if (pod.deleting) return;
  state.outbox.CallOnce(CallKey::ForPod(CallKey::Kind::kAskPod, pod.uid),
                        DeletePod{pod.id, pod.uid, Grace::kOrdinary}, state.now);
}

// It was fenced from the node, and the array has not given it back. An array that was restored from a copy
// may have forgotten the fence; its devices on the node are cut off all the same. A look from before the
// device was there says nothing: the volume may have been granted anew since.
bool IsCutOff(const State& state, const Assessment& seen, const ArrayId& array, const VolumeId& volume) {
  const auto fence = seen.fences.find(array);
  if (fence != seen.fences.end() && fence->second.volumes.contains(volume))
    return state.arrays.IsSure(array, seen.record.node);
  const auto recorded = seen.record.volumes.find(array);
  return seen.record.generations.contains(array) && recorded != seen.record.volumes.end() &&
         recorded->second.contains(volume) && state.evidence.LacksVolume(seen.record.node, array, volume);
}

bool UsesFencedDevice(const State& state, const Pod& pod, const Assessment& seen, const VolumeSet& present) {
  for (const auto& [array, used] : pod.volumes)
    for (const auto& volume : used)
      if (present.contains(volume) && IsCutOff(state, seen, array, volume)) return true;
  return false;
}

}  // namespace

void DeleteFencedPods(State& state, const Assessment& seen) {
  if (seen.fences.empty() || !IsTainted(state, seen)) return;
  for (const auto* pod : PodsToDelete(state, seen))
    if (!IsHeldByOtherInstance(state, seen.record.node, *pod)) DeleteByForce(state, seen, *pod);
}

void AskPodsToLeave(State& state, const Assessment& seen) {
  if (!seen.leaving || !seen.fences.empty()) return;
  if (!IsTainted(state, seen)) return;
  for (const auto* pod : seen.plan.move) AskToLeave(state, *pod);
}

void AskCutOffPodsToLeave(State& state, const Assessment& seen) {
  if (seen.acting || seen.signals.network != Network::kArrives || !state.IsCurrent(seen.record.node)) return;
  const auto& present = state.evidence.nodes().at(seen.record.node).heartbeat.present;
  for (const auto* pod : state.cluster.PodsOn(NameOf(seen.record.node)))
    if (UsesFencedDevice(state, *pod, seen, present)) AskToLeave(state, *pod);
}

}  // namespace lunkeeper::fencing
