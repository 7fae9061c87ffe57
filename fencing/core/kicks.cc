// For each node at each tick: is there anything to look at → is the node well → which of its pods are due →
// which of these may be moved → as many as the pace allows. The first question is cheap, as it is asked of
// thousands of nodes.

#include "fencing/core/kicks.h"

#include <algorithm>

#include "fencing/core/eligibility.h"

namespace lunkeeper::fencing {
namespace {

// What the node and the array tell of a device is a moment old, and an unstage takes its time: a pod that is
// new on the node may have another device by now, or be about to get one.
constexpr Span kFailedFor = 10_s;

struct DuePod {
  const Pod* pod;
  bool looped;  // it crash-loops; else a device of it failed
};

// By the pod that is there now: one that was there already when another of the volume was kicked has the
// device that it had, be that one of its own node's or the one that they share.
bool IsReplaced(const State& state, const Pod& pod, const VolumeId& volume) {
  return std::ranges::any_of(state.kicked, [&](const auto& kick) {
    return kick.second.failed.contains(volume) && !kick.second.beside.contains(pod.uid);
  });
}

bool ReachesAll(const State& state, const NodeId& node, const Pod& pod) {
  return std::ranges::all_of(
      pod.volumes, [&](const auto& entry) { return state.evidence.Reaches(node, entry.first, state.now); });
}

// A volume of it is in the record of an open failover.
bool IsBeingMoved(const State& state, const NodeId& node, const Pod& pod) {
  const auto* record = state.cluster.FindFence(node);
  return record && std::ranges::any_of(pod.volumes, [&](const auto& entry) {
           const auto some = record->volumes.find(entry.first);
           return some != record->volumes.end() && HaveCommonVolume(entry.second, some->second);
         });
}

// Where both have a grant, they share the volume, and the other one's says nothing of the pod: that of a
// machine that is gone may stay for good, as nobody waits for it.
bool IsOfOtherInstance(const State& state, const NodeId& node, const ArrayId& array, const VolumeId& volume) {
  return !state.evidence.HoldsVolume(node, array, volume) &&
         !state.evidence.HeldByOtherInstance(node, array, volume).empty();
}

// A device of its own failed for good, and array and path work again. No restart of a container brings such a
// device back: only a new pod gets a new one. While a fence is open its volumes, and no others, are that
// failover's: one that a person put at one array stays for as long as he wants it. Whether
// the node has the grant still is not asked: an array that went back in time knows no more of it. But what
// another instance alone holds is that one's, and so is the pod.
bool NeedsNewDevice(const State& state, const NodeId& node, const NodeEvidence& known, const Pod& pod) {
  if (known.heartbeat.failed.empty() || IsBeingMoved(state, node, pod) || !ReachesAll(state, node, pod))
    return false;
  return std::ranges::any_of(pod.volumes, [&](const auto& entry) {
    return std::ranges::any_of(entry.second, [&](const VolumeId& volume) {
      return known.heartbeat.failed.contains(volume) && !IsReplaced(state, pod, volume) &&
             !IsOfOtherInstance(state, node, entry.first, volume);
    });
  });
}

// While it lasts, each heartbeat moves its end.
bool IsAfterOutage(const State& state, const NodeEvidence& known) {
  return state.settings.crash_loops != CrashLoops::kNever && known.kicks_since < known.heartbeat_at &&
         known.kicks_since && state.now - *known.kicks_since < state.settings.kick_window;
}

// Only a StatefulSet, of any API group, is known to give a pod the name of the one before.
PodLine LineOf(const Pod& pod) {
  const bool names = pod.owner_kind.substr(0, pod.owner_kind.find('.')) == "StatefulSet";
  return {pod.owner, names ? pod.id : PodId()};
}

// A pod that crash-loops for a fault of its own does so again when it is replaced. So that is tried once:
// after an outage with each pod that was there, and at any time with one, and again only if it has helped for
// long.
bool IsCrashLoopDue(State& state, const NodeId& node, const NodeEvidence& known, const Pod& pod) {
  if (!pod.crash_looping) return false;
  const bool after_outage = IsAfterOutage(state, known);
  if (!after_outage && (state.settings.crash_loops != CrashLoops::kAlways || !ReachesAll(state, node, pod)))
    return false;
  const auto found = state.crash_loops.find(LineOf(pod));
  if (found == state.crash_loops.end()) return true;
  auto& loop = found->second;
  if (state.now - loop.seen_at >= state.settings.crash_loop_over) return true;
  loop.seen_at = state.now;
  if (loop.beside.contains(pod.uid)) return true;
  return after_outage && (loop.kicked_at < *known.kicks_since || loop.there.contains(pod.uid));
}

bool HasCrashLoops(const State& state, const NodeId& node, const NodeEvidence& known) {
  if (!IsAfterOutage(state, known) && state.settings.crash_loops != CrashLoops::kAlways) return false;
  return std::ranges::any_of(state.cluster.PodsOn(NameOf(node)),
                             [](const Pod* pod) { return pod->crash_looping && !pod->volumes.empty(); });
}

// Nothing is done to an exempt node's pods without being asked by hand. Its name may mean another one.
bool MayKick(const State& state, const NodeId& node) {
  if (state.settings.paused || state.settings.dry_run || !state.IsCurrent(node)) return false;
  const auto* object = state.cluster.FindNode(NameOf(node));
  return !(object && object->exempt) && state.ClassifyNode(node).response == Response::kNothing;
}

// The pods that crash-loop, and those of which a device has been failed for a while. Notes since when it has.
std::vector<DuePod> PodsToKick(State& state, const NodeId& node, const NodeEvidence& known) {
  std::map<Uid, Instant> before, since;
  if (const auto noted = state.failed_since.extract(node)) before = noted.mapped();
  std::vector<DuePod> due;
  for (const auto* pod : state.cluster.PodsOn(NameOf(node))) {
    if (pod->deleting || state.kicked.contains(pod->uid) || pod->volumes.empty()) continue;
    if (IsCrashLoopDue(state, node, known, *pod)) {
      due.push_back({pod, true});
    } else if (NeedsNewDevice(state, node, known, *pod)) {
      const auto noted = before.try_emplace(pod->uid, state.now).first;
      since.insert(*noted);
      if (state.now - noted->second >= kFailedFor) due.push_back({pod, false});
    }
  }
  if (!since.empty()) state.failed_since[node] = std::move(since);
  return due;
}

// The pods of its line that share a volume with it: a Deployment's, which may crash-loop of the same fault.
std::set<Uid> PodsBeside(const State& state, const Pod& pod) {
  std::set<Uid> beside;
  for (const auto& [array, used] : pod.volumes)
    for (const auto& volume : used)
      for (const auto* other : state.cluster.PodsOf(volume))
        if (other->uid != pod.uid && LineOf(*other) == LineOf(pod)) beside.insert(other->uid);
  return beside;
}

void NoteCrashLoop(State& state, const NodeEvidence& known, const Pod& pod) {
  auto& loop = state.crash_loops[LineOf(pod)];
  const bool anew = IsAfterOutage(state, known) && loop.kicked_at < *known.kicks_since;
  const bool was_there = loop.there.erase(pod.uid) != 0, was_beside = loop.beside.erase(pod.uid) != 0;
  if (anew || !(was_there || was_beside)) {
    loop.beside = PodsBeside(state, pod);
    loop.there.clear();
    for (const auto* other : state.cluster.PodsInNamespaceOf(pod.id))
      if (other->uid != pod.uid && LineOf(*other) == LineOf(pod)) loop.there.insert(other->uid);
  }
  loop.seen_at = loop.kicked_at = state.now;
}

// Counts once it is sent: after a failed one the outbox makes it wait.
void Kick(State& state, const NodeEvidence& known, const DuePod& due) {
  const Pod& pod = *due.pod;
  const auto key = CallKey::ForPod(CallKey::Kind::kKickPod, pod.uid);
  const auto why = due.looped ? WhyDeleted::kCrashLooped : WhyDeleted::kDeviceFailed;
  if (!state.outbox.CallOnce(key, DeletePod{pod.id, pod.uid, Grace::kOrdinary, why}, state.now)) return;
  PodKick kick{.at = state.now};
  if (due.looped) kick.looped = LineOf(pod), NoteCrashLoop(state, known, pod);
  for (const auto& [array, used] : pod.volumes)
    for (const auto& volume : used)
      if (!due.looped && known.heartbeat.failed.contains(volume)) {
        kick.failed.insert(volume);
        for (const auto* other : state.cluster.PodsOf(volume))
          if (other->uid != pod.uid) kick.beside.insert(other->uid);
      }
  state.kicked[pod.uid] = std::move(kick);
}

}  // namespace

void KickPods(State& state, const NodeId& node, const NodeEvidence& known) {
  const bool any = !known.heartbeat.failed.empty() || HasCrashLoops(state, node, known);
  if (!any || !MayKick(state, node)) return (void)state.failed_since.erase(node);
  std::erase_if(state.kicked,
                [&](const auto& kick) { return state.now - kick.second.at >= state.settings.kick_window; });
  const auto due = PodsToKick(state, node, known);
  if (due.empty()) return;
  // The same rules as for a move: who opted out of that does not want this either, nor that a pod beside it,
  // which shares its volume, starts elsewhere and waits for it there.
  const auto movable = PlanRestart(state.cluster, state.settings, node).move;
  for (const auto& each : due) {
    if (std::find(movable.begin(), movable.end(), each.pod) == movable.end()) continue;
    if (static_cast<int>(state.kicked.size()) >= state.settings.kicks) return;
    Kick(state, known, each);
  }
}

void ForgetKick(State& state, const Uid& pod) {
  const auto kick = state.kicked.find(pod);
  if (kick == state.kicked.end()) return;
  if (const auto& line = kick->second.looped; line && state.crash_loops.contains(*line)) {
    auto& loop = state.crash_loops.at(*line);
    loop.there.insert(pod), loop.beside.insert(pod);
  }
  state.kicked.erase(kick);
}

}  // namespace lunkeeper::fencing
