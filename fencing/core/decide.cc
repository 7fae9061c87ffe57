// Called for each node at each tick, so everything here asks whether something is due and has no memory but
// the outbox's and the safety limits'. The order of the reasons matters. A fence at an array without a record
// comes first: it has already happened, so no limit may refuse it. A person's request comes before evidence,
// and is not limited either. What only evidence asks for has to pass the limits.

#include "fencing/core/decide.h"

#include <algorithm>

#include "fencing/core/assessment.h"
#include "fencing/core/eligibility.h"
#include "fencing/core/instances.h"
#include "fencing/core/mount_deaths.h"
#include "fencing/core/words.h"

namespace lunkeeper::fencing {
namespace {

constexpr Span kCollectAfter = 600_s;        // of silence: a node without a Node is over
constexpr size_t kMostFencedInstances = 16;  // of one machine, which is closed as a whole
constexpr size_t kMostPodsNamed = 5;         // in one report
// Of one record, in a row: two seconds, or 46 s where a webhook holds each until it times out.
constexpr int kRefusalsUntilSaid = 4;

Said DryRunReport(const NodeFence& fence) {
  return {"dry run: would be failed over: " + fence.cause, Refusal::kDryRun};
}

// In a dry run: that this would be done has been said. It is not decided again, as it would not be if it had
// been done: nobody is asked for it any more, and no limit unsays it.
bool IsSaid(const State& state, const NodeFence& fence) {
  if (!state.settings.dry_run) return false;
  const auto said = state.said.find({ReportKind::kRefused, fence.node});
  return said != state.said.end() && said->second == DryRunReport(fence);
}

void RecordDecision(State& state, NodeFence fence) {
  const auto node = fence.node;
  const bool automatic = !fence.is_manual();
  if (state.settings.dry_run) {
    if (automatic && !IsSaid(state, fence)) state.limits.NoteDecision(node, state.now);
    auto said = DryRunReport(fence);
    return state.ReportOnce(
        {.kind = ReportKind::kRefused, .node = node, .text = std::move(said.text), .refusal = said.refusal});
  }
  // Counted when it is sent and not when it is answered: a write of which the answer is lost may have been
  // stored.
  if (state.outbox.CallOnce(CallKey::ForRecordOf(node), PutNodeFence{std::move(fence)}, state.now) &&
      automatic)
    state.limits.NoteDecision(node, state.now);
}

// A machine that is gone, or replaced by another of its name, and stays away: its fence at the array may stay
// for ever and needs no record.
bool IsRetired(const State& state, const NodeId& node) {
  const bool gone = !state.cluster.FindNode(NameOf(node)) || !state.IsCurrent(node);
  return gone && state.evidence.SignalsOf(node, state.now).network != Network::kArrives;
}

bool AdoptFence(State& state, const NodeId& node) {
  // What was seen before this leader's term there may have been lifted since, by the leader before.
  auto fences = state.arrays.FencesOf(node);
  std::erase_if(fences, [&](const auto& entry) { return !state.arrays.IsSure(entry.first, node); });
  if (fences.empty() || IsRetired(state, node)) return false;
  NodeFence fence;
  fence.node = node;
  fence.cause = "the array has a fence that nobody recorded";
  for (const auto& [array, found] : fences) {
    fence.volumes[array] = found.volumes;
    fence.generations[array] = found.generation;
  }
  fence.phase = Phase::kFencing;
  RecordDecision(state, std::move(fence));
  return true;
}

void ReportRefusal(State& state, const NodeId& node, std::string text, Refusal refusal) {
  state.ReportOnce({.kind = ReportKind::kRefused, .node = node, .text = std::move(text), .refusal = refusal});
}

// True: the API server has to be asked first. What the watches brought may be old: a lease that seems not to
// be renewed may only be late, and its node is well but for a plugin that hangs. An answer that is slow or
// fails is waited for, and told of.
bool IsKubeletUnread(State& state, const NodeId& node) {
  auto& due = state.due.try_emplace(node, DueFence{state.now, {}}).first->second;
  if (state.evidence.IsKubeletRead(node, due.since, state.now)) return false;
  const CallKey key{.kind = CallKey::Kind::kReadKubelet, .node = node};
  state.outbox.CallOnce(key, ReadKubelet{node, state.now}, state.now);
  if (!due.asked_at) due.asked_at = state.now;
  if (state.now - *due.asked_at >= state.settings.kubelet_read)
    ReportRefusal(state, node, "not failed over: waits for the API server's word on its kubelet",
                  Refusal::kUnread);
  return true;
}

// What another replica knows against a fence; empty: nothing. Where the plugin has ended on a kernel that
// goes on, it may be upgraded, and its kubelet with it. Only where nothing shows life here: it may do so for
// long.
std::string WhatOthersKnow(const State& state, const Signals& signals, const ReplicaVotes& votes) {
  if (!votes.heard_by.empty()) return "its heartbeats reach " + votes.heard_by;
  const bool ended = signals.storage == Storage::kSilent && signals.quiet_for() < state.settings.probation;
  if (votes.kernel_answers_to.empty() || !ended) return "";
  return "its plugin has ended, and its kernel answers " + votes.kernel_answers_to;
}

// Refused: one of the other replicas hears the node, whose path to this one is what is broken. Of a node that
// this one hears nobody is asked. IsKubeletUnread has noted since when.
Permission AskOthers(State& state, const NodeId& node) {
  const auto signals = state.evidence.SignalsOf(node, state.now);
  if (signals.network == Network::kArrives) return Permission::kGiven;
  const auto* votes = state.evidence.VotesOn(node, state.due.at(node).since, state.now);
  if (!votes) {
    const CallKey key{.kind = CallKey::Kind::kAskReplicas, .node = node};
    state.outbox.CallOnce(key, AskReplicas{node, state.now}, state.now);
    return Permission::kAwaited;
  }
  const auto known = WhatOthersKnow(state, signals, *votes);
  if (known.empty()) return Permission::kGiven;
  ReportRefusal(state, node, "not failed over: " + known, Refusal::kHeardElsewhere);
  return Permission::kRefused;
}

// A webhook or a missing right stands in the way of its record, and the alert for that stays while it does.
bool IsUnrecorded(const State& state, const NodeId& node) {
  const auto found = state.unrecorded.find(node);
  return found != state.unrecorded.end() && found->second >= kRefusalsUntilSaid;
}

bool AskedByTaint(const State& state, const NodeId& node) {
  const auto& tainted = state.cluster.tainted();
  const auto object = tainted.find(NameOf(node));
  return object != tainted.end() && object->second->out_of_service && state.IsCurrent(node);
}

// Somebody has fenced its machine, at an array or as another instance: this one is evacuated as well.
bool IsMachineFenced(const State& state, const NodeId& node) {
  return state.IsCurrent(node) && !state.FencesOfMachine(node).empty();
}

// Why a person wants it fenced, who made no NodeFence for it; empty: nobody does.
std::string RequesterOf(const State& state, const NodeId& node) {
  if (AskedByTaint(state, node)) return kByTaint;
  return IsMachineFenced(state, node) ? kByMachine : "";
}

bool HoldsSomething(const State& state, const NodeId& node) {
  const auto known = state.evidence.nodes().find(node);
  return known != state.evidence.nodes().end() && known->second.HasGrants();
}

// It says that something is left on it which its machine's fence has taken. A machine that was broken into
// may say so as any number of instances, and each fence of one stays at the array, so only some are believed.
bool IsLeftoverBelieved(const State& state, const NodeId& node) {
  std::set<NodeId> fenced;
  for (const auto& [array, fence] : state.arrays.AllFences())
    if (NameOf(fence.node) == NameOf(node) && !IsMachineId(fence.node)) fenced.insert(fence.node);
  const auto known = state.evidence.nodes().find(node);
  if (known == state.evidence.nodes().end() || fenced.size() >= kMostFencedInstances) return false;
  const auto fences = state.FencesOfMachine(node);
  return std::any_of(fences.begin(), fences.end(), [&](const auto& fence) {
    return HaveCommonVolume(known->second.heartbeat.present, fence.second.volumes);
  });
}

// The fence of its machine is recorded for another instance, and this one has nothing that would have to end.
bool IsCoveredByMachine(const State& state, const NodeId& node) {
  const auto records = InstancesOf(state.cluster.fences(), NameOf(node));
  const bool recorded = std::any_of(records.begin(), records.end(),
                                    [](const auto* record) { return record->second.is_manual(); });
  return recorded && state.arrays.FencesOf(node).empty() && !HoldsSomething(state, node) &&
         state.PlanForMachine(node).move.empty() && !IsLeftoverBelieved(state, node);
}

// Another instance has its name, and it has nothing of ours: whatever it is, nobody has to know.
bool IsForgotten(const State& state, const NodeId& node) {
  return !state.IsCurrent(node) && !HoldsSomething(state, node) && state.arrays.FencesOf(node).empty();
}

// What its machine's fence and its own have taken, with all that its pods use beside that. A fence of its own
// that the leader before may have lifted counts for nothing: the node may have those volumes anew.
VolumesByArray VolumesOfMachine(const State& state, const NodeId& node) {
  auto volumes = state.PlanForMachine(node).volumes;
  for (const auto& [array, fence] : state.FencesOfMachine(node))
    volumes[array].insert(fence.volumes.begin(), fence.volumes.end());
  for (const auto& [array, fence] : state.arrays.FencesOf(node))
    if (state.arrays.IsSure(array, node)) volumes[array].insert(fence.volumes.begin(), fence.volumes.end());
  return volumes;
}

// The next look shows whether it is there still.
bool HasUnsureFence(const State& state, const NodeId& node) {
  return std::ranges::any_of(state.arrays.FencesOf(node), [&](const auto& own) {
    return state.evidence.ArrayUp(own.first) && state.arrays.TermOf(own.first) != 0 &&
           !state.arrays.IsSure(own.first, node);
  });
}

// All that a node has which is dead and of which Kubernetes knows no more: nobody will ever give it back.
VolumesByArray CollectedFrom(const State& state, const NodeId& node) {
  const auto known = state.evidence.nodes().find(node);
  if (known == state.evidence.nodes().end() || !IsRetired(state, node)) return {};
  const auto signals = state.evidence.SignalsOf(node, state.now);
  const bool silent =
      signals.storage == Storage::kSilent &&
      std::min({signals.silent_for, signals.storage_silent_for, signals.io_seen_for}) >= kCollectAfter;
  VolumesByArray volumes;
  if (!silent) return volumes;
  for (const auto& [array, some] : known->second.HeldVolumes())
    for (const auto& volume : some)
      if (!state.cluster.IsHeldBack(volume)) volumes[array].insert(volume);
  return volumes;
}

Plan PlanOf(const State& state, const NodeId& node, const Classification& classification) {
  std::set<ArrayId> lost;
  if (classification.response == Response::kAskToLeave) lost = state.evidence.SignalsOf(node, state.now).lost;
  return state.PlanFor(node, lost, {}, classification.alive);
}

VolumesByArray AffectedVolumes(const State& state, const NodeId& node, const Classification& classification) {
  auto volumes = PlanOf(state, node, classification).volumes;
  if (classification.response != Response::kFence) return volumes;
  // Volumes that nobody moves with a pod.
  for (const auto& beside : {state.WantedFrom(node), CollectedFrom(state, node)})
    for (const auto& [array, some] : beside) {
      const auto* fence = state.arrays.Find(array, node);
      if (!fence || !Covers(fence->volumes, some)) volumes[array].insert(some.begin(), some.end());
    }
  return volumes;
}

// A node that has nothing of ours is none of our business, however dead it is. One from which nothing can
// move is reported.
void ReportPodsLeft(State& state, const NodeId& node, const Classification& classification) {
  const auto plan = PlanOf(state, node, classification);
  auto left = plan.left;
  for (const auto* pod : plan.beside)
    left.emplace_back(pod->id, "it has no volume, and only moves together with a pod that has one");
  std::string text;
  for (size_t i = 0; i < std::min(left.size(), kMostPodsNamed); ++i)
    text += (i == 0 ? "nothing is moved: " : "; ") + left[i].first.value() + ": " + left[i].second;
  if (left.size() > kMostPodsNamed) text += "; and " + std::to_string(left.size() - kMostPodsNamed) + " more";
  ReportRefusal(state, node, std::move(text), Refusal::kLeftAlone);
}

// Without the fast row, which counts only for an observer that passes its self-test.
Classification ClassifySlowly(const State& state, const NodeId& node) {
  return Classify(state.evidence.SignalsOf(node, state.now), state.settings, false);
}

// A look from before this leader's term says nothing of a fence that the leader before has made since. An
// array that is down may be for long, and keeps no taint on a node. Nor does one that gives no term: by then
// no call of the leader before is under way any more, and looks are newer.
bool MayHideFence(const State& state, const ArrayId& array) {
  const auto termless = state.termless_since.find(array);
  const bool for_long =
      termless != state.termless_since.end() && state.now - termless->second >= state.settings.answer_timeout;
  return state.evidence.ArrayUp(array) && !state.arrays.IsSure(array) && !for_long;
}

}  // namespace

Permission AskToBegin(State& state, const NodeId& node, Classification classification,
                      const VolumesByArray& volumes) {
  const auto failed =
      classification.fast ? state.limits.SelfTest(node, state.evidence, state.now) : std::string();
  if (!failed.empty()) classification = ClassifySlowly(state, node);
  if (!failed.empty() && classification.response != Response::kFence) {
    ReportRefusal(state, node, "not failed over: the self-test fails: " + failed, Refusal::kBudget);
    return Permission::kRefused;
  }
  const auto refused = state.limits.RefusalOf(node, classification, state.cluster, state.evidence, state.now);
  if (refused) {
    ReportRefusal(state, node, "not failed over: " + refused->text, refused->reason);
    return Permission::kRefused;
  }
  if (classification.response == Response::kFence) {
    // Both are asked at once. That a replica hears a node is no news where Kubernetes alone decides.
    const bool unread = IsKubeletUnread(state, node);
    const auto others = classification.despite_io ? Permission::kGiven : AskOthers(state, node);
    if (others == Permission::kRefused) return others;
    if (others == Permission::kAwaited || unread || ChargeDeath(state, node, volumes))
      return Permission::kAwaited;
  }
  // Nobody looks at this node again while it has a record, and an alert goes by what was said.
  if (!IsUnrecorded(state, node)) state.WithdrawReport(ReportKind::kRefused, node);
  return Permission::kGiven;
}

void NoteRecordAnswer(State& state, const PutNodeFence& call, Outcome outcome) {
  const NodeId& node = call.fence.node;
  // An object that is there already is soon seen, unless it is an old one that only others' finalizers keep.
  const bool stored = outcome == Outcome::kOk || outcome == Outcome::kGone;
  if (stored || state.cluster.FindFence(node)) {
    // Nobody else does where the record is for another reason than the evidence, as of a fence that was
    // found.
    if (IsUnrecorded(state, node)) state.WithdrawReport(ReportKind::kRefused, node);
    state.unrecorded.erase(node);
  } else if (call.fence.version.empty() && ++state.unrecorded[node] >= kRefusalsUntilSaid) {
    ReportRefusal(state, node,
                  "not failed over: the API server does not store its NodeFence, as a controller's log says",
                  Refusal::kUnrecorded);
  }
}

void Decide(State& state, const NodeId& node, Classification classification) {
  if (IsMachineId(node)) return;
  if (state.cluster.FindFence(node)) return;
  if (IsForgotten(state, node)) {
    state.WithdrawReport(ReportKind::kClassification, node);
    return state.WithdrawReport(ReportKind::kRefused, node);
  }
  if (classification.fast && !state.limits.SelfTest(node, state.evidence, state.now).empty())
    classification = ClassifySlowly(state, node);
  // Of one that only its fence still shows there is nothing to say.
  if (state.evidence.nodes().contains(node))
    state.ReportOnce(
        {.kind = ReportKind::kClassification, .node = node, .text = std::string(classification.what)});
  const std::string requester = RequesterOf(state, node);
  const bool manual = !requester.empty();
  if (requester == kByMachine && IsCoveredByMachine(state, node))
    return state.WithdrawReport(ReportKind::kRefused, node);
  if (requester == kByMachine && HasUnsureFence(state, node)) return;
  if (!manual && AdoptFence(state, node)) return;
  const bool by_evidence =
      classification.response == Response::kFence || classification.response == Response::kAskToLeave;
  if (!manual && !by_evidence) {
    state.unrecorded.erase(node);
    return state.WithdrawReport(ReportKind::kRefused, node);
  }
  NodeFence fence;
  fence.node = node;
  fence.cause = manual ? requester : std::string(classification.what);
  fence.requested_by = requester;
  fence.graceful = !manual && classification.response == Response::kAskToLeave;
  fence.phase = fence.graceful ? Phase::kLeaving : Phase::kFencing;
  const auto volumes =
      requester == kByMachine ? VolumesOfMachine(state, node) : AffectedVolumes(state, node, classification);
  AddToRecord(state, volumes, fence);
  if (fence.volumes.empty() && !manual) return ReportPodsLeft(state, node, classification);
  if (IsSaid(state, fence)) return;
  if (!manual && !MayBegin(state, node, classification, fence.volumes)) return;
  RecordDecision(state, std::move(fence));
}

void SweepTaints(State& state) {
  const auto arrays = state.arrays.Ids();
  if (std::any_of(arrays.begin(), arrays.end(),
                  [&](const auto& array) { return MayHideFence(state, array); }))
    return;
  for (const auto& [name, node] : state.cluster.tainted()) {
    if (node->taint.empty()) continue;
    const NodeId owner(node->taint);
    const bool of_another = !node->node_id.empty() && node->node_id != owner;
    const auto* record = state.cluster.FindFence(owner);
    if (record && (!of_another || (record->is_manual() && !WantsLifting(state, *record)))) continue;
    // Closed by a person: the node that it is now takes the taint over, or the machine is opened.
    if (!state.arrays.FencesOf(MachineId(name.value())).empty()) continue;
    // In force, and its record has been lost: it is about to be adopted.
    if (!state.arrays.FencesOf(owner).empty() && state.IsCurrent(owner)) continue;
    state.outbox.CallOnce(CallKey::ForTaintOf(name), SetTaint{name, node->version, ""}, state.now);
  }
}

}  // namespace lunkeeper::fencing
