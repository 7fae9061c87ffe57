// One event at a time: first the evidence notices whether this observer was stalled itself, then the event
// goes to the part that it concerns, and what that part wants done is taken out of the outbox.
//
// Evidence is taken in whether this replica leads or not, so that a new leader knows at once what the old one
// knew. Acting is for the leader alone, and happens at three kinds of events: at each tick, for all nodes;
// when a call is answered, for the node it was about, as each step waits for the one before it; and when a
// NodeFence is seen, so that a person's request does not wait for a tick.

#include "fencing/core/core.h"

#include <utility>

#include "fencing/core/decide.h"
#include "fencing/core/instances.h"
#include "fencing/core/kicks.h"
#include "fencing/core/mount_deaths.h"
#include "fencing/core/plugin_taint.h"
#include "fencing/core/reconcile.h"

namespace lunkeeper::fencing {
namespace {

constexpr Span kForgetEvery = 60_s;
constexpr Span kFollowerClassifiesEvery = 1_s;

// Empty: of no array.
std::string WhatIsNotMoved(const char* why, const std::vector<ArrayId>& arrays) {
  std::string names;
  for (const auto& array : arrays) names += (names.empty() ? "" : ", ") + array.value();
  return names.empty() ? "" : why + names + ": nothing on it is moved";
}

// Empty: nothing.
std::string WhatWaits(const State& state) {
  std::string text;
  for (const auto& array : state.arrays.Ids())
    if (const auto why = state.evidence.WhatIsUnseen(array, state.now); !why.empty())
      text += (text.empty() ? "of array " : "; of array ") + array.value() +
              " the leader sees only a part, as " + why + ": volumes there wait for it";
  return text;
}

// "a; b"
std::string JoinTexts(const std::string& first, const std::string& second) {
  return first + (first.empty() || second.empty() ? "" : "; ") + second;
}

}  // namespace

Core::Core(const Settings& settings, std::string self)
    : state_(settings), election_(state_.settings, self), self_(std::move(self)) {}

std::vector<Action> Core::Step(Event event) {
  state_.now = event.now;
  state_.evidence.Observe(event.now);
  std::visit([this](auto& what) { HandleEvent(std::move(what)); }, event.what);
  return state_.outbox.TakeActions();
}

void Core::HandleEvent(const Tick&) {
  state_.evidence.NoteLateArrays(state_.now);
  for (const auto& node : state_.evidence.TakeProbesDue(state_.now)) state_.outbox.SendAction(Probe{node});
  for (const auto& probe : state_.evidence.TakePortalProbesDue(state_.now)) state_.outbox.SendAction(probe);
  state_.placement.NoteTick(Leads(), synced_ && state_.IsFailingOver(), state_.now);
  if (auto write = DueLeaseWrite()) {
    const CallKey key{.kind = CallKey::Kind::kLease, .sent = state_.now};
    state_.outbox.CallOnce(key, std::move(*write), state_.now);
  }
  if (led_ && !Leads()) state_.LoseLead();
  led_ = Leads();
  if (Leads()) AskForSights();
  if (MayAct()) {
    ActAsLeader();
  } else if (synced_ && state_.now - classified_at_ >= kFollowerClassifiesEvery) {
    // A new leader has to know which nodes got into trouble together, and which did not.
    ClassifyNodes();
    classified_at_ = state_.now;
  }
  state_.outbox.PruneCalls(state_.now);
  for (const auto& call : state_.outbox.TakeGivenUp())
    if (const auto* put = std::get_if<PutNodeFence>(&call.what); put && Leads())
      NoteRecordAnswer(state_, *put, Outcome::kFailed);
  if (state_.now - forgot_at_ >= kForgetEvery) state_.ForgetNodes(), forgot_at_ = state_.now;
}

// Who sees no array can lead nobody, and another replica may see one. One that sees more than this one leads
// better. One that cannot act leaves a free lease to the replicas that can.
std::optional<WriteLease> Core::DueLeaseWrite() {
  const bool blind = state_.evidence.IsBlind(state_.now);
  ReportLeadership(blind);
  if (blind) return std::nullopt;
  if (!Leads() || !state_.placement.Successor(state_.now))
    return election_.DueWrite(state_.now, !CouldLead());
  auto release = election_.GiveUp(state_.now);
  if (release) {
    state_.ReportOnce({.kind = ReportKind::kLeadership, .text = state_.placement.WhyYield()});
    state_.placement.NoteYield(state_.now);
  }
  return release;
}

// Where failover does not act, people have to know: a replica that is not fit to lead, and a leader that does
// nothing on evidence, or nothing for the nodes of an array.
void Core::ReportLeadership(bool blind) {
  std::string text;
  if (!Leads()) state_.termless_since.clear();
  if (blind) {
    text = "sees no array, and does not lead until it does";
  } else if (Leads()) {
    text = WhatIsNotMoved("the leader cannot look at ", state_.UnseenArrays());
    text = JoinTexts(text, WhatIsNotMoved("the leader gets no term on ", state_.TermlessArrays()));
    text = JoinTexts(text, WhatWaits(state_));
    if (state_.settings.paused || state_.settings.dry_run)
      text = JoinTexts(std::string(state_.settings.paused ? "failover is paused" : "failover is a dry run") +
                           ": nothing is begun on evidence",
                       text);
  }
  state_.ReportOnce({.kind = ReportKind::kLeadership, .text = std::move(text)});
}

void Core::ChangeSettings(const Settings& settings) {
  const Settings before = std::exchange(state_.settings, settings);
  state_.settings.lease = before.lease;
  state_.settings.lease_margin = before.lease_margin;
  state_.settings.lease_renew = before.lease_renew;
}

// The API server has to answer it, or it could not take the lease.
bool Core::CouldLead() const {
  return synced_ && state_.evidence.ApiUp(state_.now) && !state_.evidence.IsBlind(state_.now);
}

std::optional<ReplicaSight> Core::Sight() const {
  if (!CouldLead()) return std::nullopt;
  ReplicaSight sight{.replica = self_, .age = state_.now - state_.evidence.watches_since()};
  for (const auto& array : state_.arrays.Ids()) sight.arrays += state_.evidence.ArrayUp(array) ? 1 : 0;
  sight.nodes = state_.evidence.CountArriving(state_.now);
  return sight;
}

void Core::AskForSights() {
  const CallKey key{.kind = CallKey::Kind::kAskReplicas};
  if (state_.outbox.TakeTurn({.kind = CallKey::Kind::kAskSights}, state_.settings.sights_every, state_.now))
    state_.outbox.CallOnce(key, AskReplicas{{}, state_.now}, state_.now);
}

void Core::ActAsLeader() {
  BeginTerms();
  // Of all first: what becomes of one node depends on how many others are in the same trouble.
  const auto classifications = ClassifyNodes();
  auto classification = classifications.begin();
  for (const auto& [node, known] : state_.evidence.nodes()) {
    Decide(state_, node, *classification++);
    KickPods(state_, node, known);
  }
  // Nodes of which nothing is known but a fence: it may have lost its record.
  for (const auto& [array, fence] : state_.arrays.AllFences())
    if (!state_.evidence.nodes().contains(fence.node))
      Decide(state_, fence.node, state_.ClassifyNode(fence.node));
  ReconcileAll();
  SweepTaints(state_);
  TendPluginTaints(state_);
  TendCharges(state_);
  ReportHeldBack(state_);
}

std::vector<Classification> Core::ClassifyNodes() {
  std::vector<Classification> classifications;
  classifications.reserve(state_.evidence.nodes().size());
  for (const auto& [node, known] : state_.evidence.nodes()) {
    classifications.push_back(
        state_.ClassifyAndNote(node, state_.evidence.SignalsOf(node, known, state_.now)));
  }
  state_.limits.CountNodes(state_.cluster, state_.evidence, state_.now);
  return classifications;
}

// Over a copy: a step may remove a NodeFence from the cluster's.
void Core::ReconcileAll() {
  const auto fences = state_.cluster.fences();
  for (const auto& entry : fences) Reconcile(state_, entry.first);
}

void Core::BeginTerms() {
  std::erase_if(state_.termless_since, [&](const auto& entry) {
    return state_.arrays.TermOf(entry.first) != 0 || !state_.evidence.ArrayUp(entry.first);
  });
  // After a refusal the lease has to show that it is still us who lead.
  if (election_.renewed_at() < refused_at_) return;
  for (const auto& array : state_.arrays.Ids()) {
    if (state_.arrays.TermOf(array) != 0 || !state_.evidence.ArrayUp(array)) continue;
    state_.termless_since.try_emplace(array, state_.now);
    const CallKey key{.kind = CallKey::Kind::kBeginTerm, .array = array};
    state_.outbox.CallOnce(key, BeginTerm{array}, state_.now);
  }
}

void Core::HandleEvent(const FenceGone& gone) {
  state_.cluster.Remove(gone.node);
  state_.leaving_since.erase(gone.node);
  state_.decided_dead.erase(gone.node);
  state_.came_back.erase(gone.node);
  state_.WithdrawReport(ReportKind::kRefused, gone.node);  // the next one is reported again
}

void Core::HandleEvent(const ArrayView& view) {
  state_.evidence.NoteEvent(view, state_.now);
  state_.arrays.NoteView(view);
}

void Core::HandleEvent(const ArrayGone& gone) {
  state_.evidence.NoteEvent(gone);
  state_.arrays.Remove(gone.array);
  std::erase_if(state_.wanted, [&](const auto& request) { return request.second.array == gone.array; });
}

void Core::HandleEvent(const VolumeWanted& wanted) {
  state_.wanted[wanted.volume] = {wanted.array, wanted.holder, state_.now};
}

void Core::HandleEvent(const ApiSynced&) {
  if (!std::exchange(synced_, true))
    state_.evidence.ForgetLeases([&](const auto& name) { return !state_.cluster.FindNode(name); });
  state_.evidence.ApiAnswers(state_.now);
}

// A lease may outlive its Node, and is no Node: nothing would ever say that it is gone. At first nodes are
// still being listed, and it is forgotten when they are.
void Core::HandleEvent(const KubeletLease& lease) {
  if (synced_ && !state_.cluster.FindNode(lease.node)) return;
  state_.evidence.NoteEvent(lease, state_.now);
}

void Core::HandleEvent(const NodeSeen& seen) {
  state_.evidence.NoteEvent(seen, state_.now);
  state_.cluster.StoreObject(seen.node);
}

void Core::HandleEvent(const NodeGone& gone) {
  state_.evidence.NoteEvent(gone);
  state_.cluster.Remove(gone.node);
}

void Core::HandleEvent(const VolumeCharged& seen) { NoteChargeSeen(state_, seen); }

// The budget counts what any replica decided, so that a change of leaders does not double it; each decision
// when it is first seen, as its record changes again when the node returns, however much later.
void Core::HandleEvent(const FenceSeen& seen) {
  const auto* known = state_.cluster.FindFence(seen.fence.node);
  const bool is_new = !known || known->uid != seen.fence.uid;
  // Of our own one the uid may be news.
  if (is_new && !(known && known->uid.empty())) state_.leaving_since.erase(seen.fence.node);
  state_.cluster.StoreObject(seen.fence);
  if (is_new && seen.fence.requested_by.empty()) state_.limits.NoteDecision(seen.fence.node, state_.now);
  ReconcileNode(seen.fence.node);
}

void Core::DecideAndReconcile(const NodeId& node, const Classification& classification) {
  if (!MayAct()) return;
  Decide(state_, node, classification);
  Reconcile(state_, node);
}

void Core::ReconcileNode(const NodeId& node) {
  if (MayAct()) Reconcile(state_, node);
}

// Over copies of the ids, as in ReconcileAll. A machine's fence may matter to every node of it.
void Core::ReconcileFenced(const NodeId& fenced) {
  if (!IsMachineId(fenced)) return ReconcileNode(fenced);
  std::vector<NodeId> nodes;
  for (const auto* entry : InstancesOf(state_.cluster.fences(), NameOf(fenced)))
    nodes.push_back(entry->first);
  for (const NodeId& node : nodes) ReconcileNode(node);
}

void Core::HandleEvent(const Done& done) {
  const auto action = state_.outbox.TakeAnswered(done, state_.now);
  if (action) std::visit([&](const auto& call) { HandleAnswer(call, done); }, action->what);
}

// A new leader, and one who gets a term, goes on at once: ticks are long for the pods that wait for it.
void Core::HandleAnswer(const WriteLease& write, const Done& done) {
  const bool led = Leads();
  election_.NoteAnswer(write, done.outcome, done.version, state_.now);
  led_ |= Leads();  // also if the lease is lost before the next tick, its terms are
  if (!led && MayAct()) ActAsLeader();
}

void Core::HandleAnswer(const BeginTerm& call, const Done& done) {
  // A term that comes after the lease was lost is another leader's to take over.
  if (done.outcome != Outcome::kOk || !Leads()) return;
  state_.arrays.NoteTerm(call.array, done.term, state_.now);
  if (MayAct()) ReconcileAll();
}

void Core::HandleAnswer(const ReadKubelet& call, const Done& done) {
  if (done.outcome != Outcome::kOk && done.outcome != Outcome::kGone) return;
  state_.evidence.NoteRead(call, done.kubelet, state_.now);
  if (const auto due = state_.due.find(call.node); due != state_.due.end()) due->second.asked_at.reset();
  if (MayAct())
    DecideAndReconcile(call.node,
                       state_.ClassifyAndNote(call.node, state_.evidence.SignalsOf(call.node, state_.now)));
}

// Also where nobody could be asked: then there are no votes, and none stands against it. A leader that could
// not lead now, as the API server brings it no changes, counts as one that sees nothing.
void Core::HandleAnswer(const AskReplicas& call, const Done& done) {
  if (call.node.empty())
    return state_.placement.NoteSights(call, Sight().value_or(ReplicaSight()), done.votes.sights, state_.now);
  state_.evidence.NoteVotes(call, done.votes, state_.now);
  NotePluginVotes(state_, call, done.votes);
  DecideAndReconcile(call.node, state_.ClassifyNode(call.node));
}

void Core::HandleAnswer(const FenceNode& call, const Done& done) {
  if (done.outcome == Outcome::kRefused) LoseTerm(call.array);
  // It may be stored: the next look tells.
  if (done.outcome == Outcome::kFailed) state_.arrays.NoteDoubt(call.array, state_.now);
  if (done.outcome != Outcome::kOk || !done.fence) return;
  state_.arrays.NoteFence(call.array, *done.fence, state_.now);
  ReconcileFenced(call.node);
}

void Core::HandleAnswer(const UnfenceNode& call, const Done& done) {
  if (done.outcome == Outcome::kRefused) LoseTerm(call.array);
  if (done.outcome != Outcome::kOk) return;
  state_.arrays.NoteUnfence(call.array, call.node, state_.now);
  ReconcileFenced(call.node);
}

void Core::LoseTerm(const ArrayId& array) {
  state_.arrays.LostTerm(array);
  refused_at_ = state_.now;
}

// What the watch has brought meanwhile is newer than the answer, and stays.
void Core::HandleAnswer(const SetTaint& call, const Done& done) {
  NotePluginTaint(state_, call, done.outcome);
  const auto* known = state_.cluster.FindNode(call.node);
  if (done.outcome != Outcome::kOk || !known || known->version != call.expected) return;
  auto node = *known;
  node.version = done.version;
  const bool of_fence = call.taint == OurTaint::kFenced;
  if (of_fence) {
    node.taint = call.value;
  } else {
    node.plugin_taint = call.value.empty() ? PluginTaint::kNone : PluginTaint::kByLeader;
  }
  state_.cluster.StoreObject(node);
  if (of_fence && !call.value.empty()) ReconcileNode(NodeId(call.value));
}

void Core::HandleAnswer(const PutNodeFence& call, const Done& done) {
  const auto* known = state_.cluster.FindFence(call.fence.node);
  // One that was never seen, as the API server's store went back in time after it was made: no watch will
  // tell.
  if (done.outcome == Outcome::kGone && known && known->version == call.fence.version)
    state_.cluster.Remove(call.fence.node);
  if (Leads()) NoteRecordAnswer(state_, call, done.outcome);
  if (done.outcome != Outcome::kOk) return;
  if ((known ? known->version : Version()) != call.fence.version) return;
  auto fence = call.fence;
  fence.version = done.version;
  // A watch may have told meanwhile. A write that changes nothing has no event, so nothing would tell again.
  if (known) fence.uid = known->uid;
  // Or is about to: it need not be written again for that at once (WriteToFind), should it have to go.
  const CallKey turn{.kind = CallKey::Kind::kRemoveRecord, .node = fence.node};
  if (fence.uid.empty()) state_.outbox.TakeTurn(turn, 2 * state_.settings.retry, state_.now);
  state_.cluster.StoreObject(fence);
  ReconcileNode(fence.node);
}

// Another one of the same name may have been made meanwhile.
void Core::HandleAnswer(const RemoveNodeFence& call, const Done& done) {
  const auto* known = state_.cluster.FindFence(call.node);
  if (done.outcome != Outcome::kOk || (known && known->uid != call.uid)) return;
  state_.cluster.Remove(call.node);
  state_.decided_dead.erase(call.node);
  state_.came_back.erase(call.node);
  if (MayAct()) SweepTaints(state_);
}

// Seen when its pod is. A kick that failed is due again.
void Core::HandleAnswer(const DeletePod& call, const Done& done) {
  if (done.outcome != Outcome::kOk && done.outcome != Outcome::kGone) ForgetKick(state_, call.uid);
}

// A charge that cannot be stored counts here all the same, and the failover that waits for it goes on.
void Core::HandleAnswer(const ChargeVolume& call, const Done& done) {
  NoteChargeAnswer(state_, call, done.outcome);
  if (!call.nodes.empty()) DecideAndReconcile(call.nodes.back(), state_.ClassifyNode(call.nodes.back()));
}

}  // namespace lunkeeper::fencing
