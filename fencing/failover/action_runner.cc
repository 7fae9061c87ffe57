#include "fencing/failover/action_runner.h"

#include <utility>
#include <variant>

#include "fencing/failover/array_actions.h"

// The threads an action may run on:
//
// - lease_workers_, 3 of them: renewing the lease must never wait behind anything else, a renewal that hangs
//   included.
// - pod_workers_, 64: deletions of pods, each call of which may take 3 s; slow_pod_workers_, 64: deletions
//   that timed out before, and may take 24 s. A webhook that holds the pods of a namespace must delay no
//   others, so the namespaces take turns.
// - read_workers_, 8: what the API server has of a kubelet. No webhook holds that.
// - plugin_taint_workers_, 4: the taints of silent plugins, which can wait, and may be many.
// - api_workers_, 16: all other calls to the API server. These and the ones above are checked for leadership
//   when their turn comes.
// - An array's own, 8 for each array (array_hub.h).
// - The loop's: Notify and the probes, which do not block.
//
// The loop's thread never waits for any of them. If the process is killed here, an action may have taken
// effect without an answer. That is the same as an answer that was lost: the next leader reads the state and
// continues, and every action may be repeated.
namespace lunkeeper::fencing {
namespace {

Answer LeadsNoMore() { return FromApi(absl::CancelledError("this replica leads no more")); }

}  // namespace

ActionRunner::ActionRunner(ActionInputs inputs)
    : inputs_(std::move(inputs)),
      portals_(inputs_.arrays, inputs_.prober.get(),
               [this](const ArrayId& array) { inputs_.probed(PortalAnswered{array}); }),
      poll_ended_(inputs_.executor.MakeSignal()),
      pod_workers_(inputs_.executor, kDeletionsAtOnce),
      slow_pod_workers_(inputs_.executor, kSlowDeletionsAtOnce),
      api_workers_(inputs_.executor.MakeWorkers(kOtherCallsAtOnce)),
      read_workers_(inputs_.executor.MakeWorkers(kReadsAtOnce)),
      plugin_taint_workers_(inputs_.executor.MakeWorkers(kPluginTaintsAtOnce)),
      lease_workers_(inputs_.executor.MakeWorkers(3)) {}

void ActionRunner::Stop() {
  inputs_.kube.EndActions();
  pod_workers_.Stop();
  slow_pod_workers_.Stop();
  api_workers_->Stop();
  read_workers_->Stop();
  plugin_taint_workers_->Stop();
  lease_workers_->Stop();
}

ActionRunner::~ActionRunner() {
  Stop();
  while (IsPolling()) poll_ended_->WaitFor(absl::InfiniteDuration());
}

bool ActionRunner::IsPolling() {
  absl::MutexLock lock(&polls_mutex_);
  return polls_ > 0;
}

void ActionRunner::RunAction(const Action& action, Instant now) {
  std::visit([&](const auto& call) { RunCall(action, call, now); }, action.what);
}

// A call may wait for a worker while this replica loses its leadership. Another replica acts then, and a late
// write of this one could undo its work, so leadership is checked again right before the call. The
// preconditions of each write cover the moment between that check and the write itself.
//
// The core asks anew for what it still wants and has no answer to. While a call waits, the next of its kind
// for its object takes its place: so what waits does not grow, and the answer is one that the core waits for.
// The action before is answered at once, for the recorder, which counts what has no answer yet.
void ActionRunner::CallApi(const std::string& what, const Action& action, Instant now,
                           std::function<Answer()> call) {
  WaitingCall replaced = {action, now, std::move(call)};
  if (!AddWaiting(what, replaced))
    return inputs_.answered(replaced.action, FromApi(absl::UnavailableError("it still waits for its turn")),
                            replaced.asked);
  ++waiting_calls_;
  PostCall(action, [this, what] {
    const WaitingCall next = TakeWaiting(what);
    inputs_.answered(next.action, MayWrite() ? next.call() : LeadsNoMore(), next.asked);
    --waiting_calls_;
  });
}

bool ActionRunner::AddWaiting(const std::string& what, WaitingCall& call) {
  absl::MutexLock lock(&waiting_mutex_);
  const auto [waiting, is_new] = waiting_.try_emplace(what);
  std::swap(waiting->second, call);
  return is_new;
}

void ActionRunner::PostCall(const Action& action, std::function<void()> job) {
  if (std::holds_alternative<ReadKubelet>(action.what)) return read_workers_->Post(std::move(job));
  const auto* taint = std::get_if<SetTaint>(&action.what);
  if (taint != nullptr && taint->taint == OurTaint::kPluginNotReady)
    return plugin_taint_workers_->Post(std::move(job));
  const auto* deletion = std::get_if<DeletePod>(&action.what);
  if (deletion == nullptr) return api_workers_->Post(std::move(job));
  auto& workers = inputs_.kube.IsSlow(*deletion) ? slow_pod_workers_ : pod_workers_;
  const std::string& pod = deletion->pod.value();
  workers.Post(pod.substr(0, pod.find('/')), std::move(job));
}

ActionRunner::WaitingCall ActionRunner::TakeWaiting(const std::string& what) {
  absl::MutexLock lock(&waiting_mutex_);
  return std::move(waiting_.extract(what).mapped());
}

// Arrays need no such check: they refuse every call that names an older term.
void ActionRunner::CallArray(const Action& action, const ArrayId& array, Instant now,
                             std::function<Answer(FenceControl&)> call) {
  inputs_.arrays.PostWork(array, [this, action, call = std::move(call), asked = now](Array* at) {
    if (at == nullptr)
      return inputs_.answered(action, FromApi(absl::UnavailableError("it is not among the arrays now")),
                              asked);
    inputs_.answered(action, call(at->fences()), asked);
  });
}

// Not by CallApi: a replica that does not lead must be able to take the lease.
void ActionRunner::RunCall(const Action& action, const WriteLease& call, Instant) {
  lease_workers_->Post(
      [this, action, call] { inputs_.answered(action, inputs_.kube.RenewLease(call), call.sent); });
}

void ActionRunner::RunCall(const Action& action, const BeginTerm& call, Instant now) {
  CallArray(action, call.array, now,
            [this, call](FenceControl& at) { return BeginTermOn(call, at, inputs_.self); });
}

// The board learns of the fence from the worker, before the core does: the node's next heartbeat may already
// get it in its answer.
void ActionRunner::RunCall(const Action& action, const FenceNode& call, Instant now) {
  CallArray(action, call.array, now, [this, call](FenceControl& at) {
    Answer answer = FenceNodeOn(call, at, inputs_.self);
    if (answer.done.fence) inputs_.board.OnFenced(call.array, *answer.done.fence, NowOn(inputs_.executor));
    return answer;
  });
}

void ActionRunner::RunCall(const Action& action, const UnfenceNode& call, Instant now) {
  CallArray(action, call.array, now, [this, call](FenceControl& at) {
    Answer answer = UnfenceNodeOn(call, at);
    if (answer.done.outcome == Outcome::kOk)
      inputs_.board.OnUnfenced(call.array, call.node, NowOn(inputs_.executor));
    return answer;
  });
}

// Without an address nobody can be asked. No answer comes then, and the evidence stays as it is.
void ActionRunner::RunCall(const Action&, const Probe& call, Instant) {
  const NodeFacts* facts = inputs_.objects.FindNode(NameOf(call.node));
  if (facts == nullptr || facts->address.empty()) return;
  inputs_.prober->Probe(facts->address, facts->kubelet_port, [this, node = call.node](ProbeResult result) {
    inputs_.probed(
        ProbeAnswer{.node = node, .answered = IsAnswer(result), .no_route = result == ProbeResult::kNoRoute});
  });
}

void ActionRunner::RunCall(const Action&, const ProbePortals& call, Instant now) {
  portals_.ProbeArray(call, now);
}

void ActionRunner::RunCall(const Action& action, const ReadKubelet& call, Instant now) {
  CallApi("read " + call.node.value(), action, now, [this, call] { return inputs_.kube.ReadKubelet(call); });
}

// Where there is nobody to ask, nobody has a vote.
void ActionRunner::RunCall(const Action& action, const AskReplicas& call, Instant now) {
  const auto answer = [answered = inputs_.answered, action, now](const ReplicaVotes& votes) {
    Answer result = FromApi(absl::OkStatus());
    result.done.votes = votes;
    answered(action, std::move(result), now);
  };
  if (!inputs_.ask_replicas) return answer({});
  {
    absl::MutexLock lock(&polls_mutex_);
    ++polls_;
  }
  inputs_.ask_replicas(call.node, [this, answer](const ReplicaVotes& votes) {
    answer(votes);
    absl::MutexLock lock(&polls_mutex_);
    --polls_;
    poll_ended_->Set();
  });
}

// The timeline is copied now, on the loop's thread, which owns it.
void ActionRunner::RunCall(const Action& action, const PutNodeFence& call, Instant now) {
  CallApi("put " + call.fence.node.value(), action, now,
          [this, call, timeline = inputs_.timeline_of(call.fence.node)] {
            return inputs_.kube.PutRecord(call, timeline);
          });
}

void ActionRunner::RunCall(const Action& action, const RemoveNodeFence& call, Instant now) {
  CallApi("remove " + call.uid.value(), action, now,
          [this, call] { return inputs_.kube.RemoveRecord(call); });
}

// A patch replaces the whole list of taints, so it must be made from the version that the core has seen.
void ActionRunner::RunCall(const Action& action, const SetTaint& call, Instant now) {
  const NodeFacts* facts = inputs_.objects.FindNode(call.node);
  if (facts == nullptr || facts->version != call.expected)
    return inputs_.answered(action, FromApi(absl::AbortedError("the node has changed")), now);
  const std::string what = call.taint == OurTaint::kFenced ? "taint " : "plugin taint ";
  CallApi(what + call.node.value(), action, now, [this, call, uid = facts->uid, taints = facts->taints] {
    return inputs_.kube.WriteTaint(call, uid, taints);
  });
}

void ActionRunner::RunCall(const Action& action, const DeletePod& call, Instant now) {
  // The object of a Job's pod stays for its finalizer. With podReplacementPolicy Failed, which every
  // podFailurePolicy implies, the Job makes no other one before this one has failed, and no kubelet is there
  // to say that it has. The lease may be lost in between; the pod is then left as failed, and replaced.
  const PodFacts* facts = inputs_.objects.FindPod(call.pod);
  const bool fails = call.grace == Grace::kNone && facts != nullptr && facts->uid == call.uid &&
                     facts->owner_kind == "Job.batch";
  const std::string what = call.grace == Grace::kNone ? "delete " : "ask ";
  CallApi(what + call.uid.value(), action, now, [this, call, fails] {
    if (fails) {
      Answer failed = inputs_.kube.FailPod(call);
      if (failed.done.outcome != Outcome::kOk) return failed;
      if (!MayWrite()) return LeadsNoMore();
    }
    return inputs_.kube.RemovePod(call);
  });
}

// With the version that the core has seen, so that a person's change in between is seen first.
void ActionRunner::RunCall(const Action& action, const ChargeVolume& call, Instant now) {
  const std::string* name = inputs_.objects.FindVolumeOf(call.volume);
  if (name == nullptr)
    return inputs_.answered(action, FromApi(absl::NotFoundError("no PersistentVolume has it")), now);
  CallApi("charge " + call.volume.value(), action, now,
          [this, call, name = *name, version = inputs_.objects.FindVolume(*name)->version] {
            return inputs_.kube.ChargeVolume(call, name, version);
          });
}

void ActionRunner::RunCall(const Action&, const Notify& call, Instant now) {
  inputs_.board.OnNotify(call, now);
}

}  // namespace lunkeeper::fencing
