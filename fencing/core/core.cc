#include "fencing/core/core.h"

#include <utility>

#include "fencing/core/decide.h"
#include "fencing/core/reconcile.h"

namespace lunkeeper::fencing {

Core::Core(const Settings& settings, std::string self)
    : state_(settings), election_(state_.settings, std::move(self)) {}

std::vector<Action> Core::Step(Event event) {
  state_.now = event.now;
  state_.evidence.Observe(event.now);
  std::visit([this](auto& what) { On(std::move(what)); }, event.what);
  return state_.outbox.Take();
}

void Core::On(const Tick&) {
  for (const auto& node : state_.evidence.TakeProbesDue(state_.now)) state_.outbox.Send(Probe{node});
  // Who sees no array can lead nobody, and another replica may see one.
  const bool blind = state_.evidence.IsBlind(state_.now);
  if (auto write = blind ? std::nullopt : election_.Due(state_.now))
    state_.outbox.Call("lease " + std::to_string(state_.now.since_start().milliseconds()), std::move(*write),
                       state_.now);
  // Another may have led meanwhile, and these terms are no longer ours.
  if (led_ && !Leads()) state_.arrays.LostTerms();
  led_ = Leads();
  if (MayAct()) Lead();
  state_.outbox.Prune(state_.now);
}

void Core::Lead() {
  BeginTerms();
  for (const auto& [node, known] : state_.evidence.nodes()) {
    Decide(state_, node, Classify(state_.evidence.Look(node, known, state_.now), state_.settings));
    Kick(state_, node, known);
  }
  for (const auto& [array, fence] : state_.arrays.All())
    if (!state_.evidence.nodes().contains(fence.node))
      Decide(state_, fence.node, state_.ClassifyNode(fence.node));
  ReconcileAll();
  SweepTaints(state_);
}

void Core::ReconcileAll() {
  const auto fences = state_.cluster.fences();
  for (const auto& entry : fences) Reconcile(state_, entry.first);
}

void Core::BeginTerms() {
  // After a refusal the lease has to show that it is still us who lead.
  if (election_.renewed_at() < refused_at_) return;
  for (const auto& array : state_.arrays.Ids())
    if (state_.arrays.TermOf(array) == 0 && state_.evidence.ArrayUp(array))
      state_.outbox.Call("term " + array.value(), BeginTerm{array}, state_.now);
}

void Core::On(const FenceGone& gone) {
  state_.cluster.Remove(gone.node);
  state_.ReportOnce(ReportKind::kRefused, gone.node, "");  // the next one is told again
}

void Core::On(const ArrayView& view) {
  state_.evidence.On(view, state_.now);
  state_.arrays.On(view);
}

void Core::On(const ArrayGone& gone) {
  state_.evidence.On(gone);
  state_.arrays.Remove(gone.array);
  std::erase_if(state_.wanted, [&](const auto& wish) { return wish.second.array == gone.array; });
}

void Core::On(const VolumeWanted& wanted) {
  state_.wanted[wanted.volume] = {wanted.array, wanted.holder, state_.now};
}

void Core::On(const ApiSynced&) {
  synced_ = true;
  state_.evidence.ApiAnswers(state_.now);
}

void Core::On(const NodeSeen& seen) {
  state_.evidence.On(seen, state_.now);
  state_.cluster.Put(seen.node);
}

void Core::On(const NodeGone& gone) {
  state_.evidence.On(gone);
  state_.cluster.Remove(gone.node);
}

void Core::On(const FenceSeen& seen) {
  state_.cluster.Put(seen.fence);
  if (seen.fence.requested_by.empty()) state_.limits.Decided(seen.fence.node, state_.now);
  ReconcileNode(seen.fence.node);
}

void Core::ReconcileNode(const NodeId& node) {
  if (MayAct()) Reconcile(state_, node);
}

void Core::On(const Done& done) {
  const auto action = state_.outbox.Finish(done, state_.now);
  if (action) Answered(*action, done);
}

void Core::Answered(const Action& action, const Done& done) {
  // A new leader, and one who gets a term, goes on at once: ticks are long for the pods that wait for it.
  if (const auto* write = std::get_if<WriteLease>(&action.what)) {
    const bool led = Leads();
    election_.Written(*write, done.outcome, done.version, state_.now);
    if (!led && MayAct()) Lead();
    return;
  }
  if (const auto* call = std::get_if<BeginTerm>(&action.what)) {
    if (done.outcome != Outcome::kOk || !Leads()) return;
    state_.arrays.BeganTerm(call->array, done.term);
    if (MayAct()) ReconcileAll();
    return;
  }
  if (const auto* call = std::get_if<FenceNode>(&action.what)) {
    if (done.outcome == Outcome::kOk && done.fence) Succeeded(*call, done);
    if (done.outcome == Outcome::kRefused) state_.arrays.LostTerm(call->array), refused_at_ = state_.now;
  } else if (const auto* lift = std::get_if<UnfenceNode>(&action.what)) {
    if (done.outcome == Outcome::kOk) Succeeded(*lift);
    if (done.outcome == Outcome::kRefused) state_.arrays.LostTerm(lift->array), refused_at_ = state_.now;
  } else if (const auto* taint = std::get_if<SetTaint>(&action.what)) {
    if (done.outcome == Outcome::kOk) Succeeded(*taint, done);
  } else if (const auto* put = std::get_if<PutNodeFence>(&action.what)) {
    if (done.outcome == Outcome::kOk) Succeeded(*put, done);
    if (done.outcome == Outcome::kGone) Vanished(*put);
  } else if (const auto* removed = std::get_if<RemoveNodeFence>(&action.what)) {
    if (done.outcome != Outcome::kOk) return;
    state_.cluster.Remove(removed->node);
    if (MayAct()) SweepTaints(state_);
  }
}

void Core::Succeeded(const FenceNode& call, const Done& done) {
  state_.arrays.Fenced(call.array, *done.fence, state_.now);
  ReconcileNode(call.node);
}

void Core::Succeeded(const UnfenceNode& call) {
  state_.arrays.Unfenced(call.array, call.node, state_.now);
  ReconcileNode(call.node);
}

// What the watch has brought meanwhile is newer than the answer, and stays.
void Core::Succeeded(const SetTaint& call, const Done& done) {
  const auto* known = state_.cluster.FindNode(call.node);
  if (!known || known->version != call.expected) return;
  auto node = *known;
  node.taint = call.value;
  node.version = done.version;
  state_.cluster.Put(node);
  if (!call.value.empty()) ReconcileNode(NodeId(call.value));
}

void Core::Succeeded(const PutNodeFence& call, const Done& done) {
  const auto* known = state_.cluster.FindFence(call.fence.node);
  if ((known ? known->version : Version()) != call.fence.version) return;
  auto fence = call.fence;
  fence.version = done.version;
  state_.cluster.Put(fence);
  ReconcileNode(fence.node);
}

// One that was never seen, as the API server's store went back in time after it was made: no watch will tell.
void Core::Vanished(const PutNodeFence& call) {
  const auto* known = state_.cluster.FindFence(call.fence.node);
  if (known && known->version == call.fence.version) state_.cluster.Remove(call.fence.node);
}

}  // namespace lunkeeper::fencing
