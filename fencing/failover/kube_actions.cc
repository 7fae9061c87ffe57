#include "fencing/failover/kube_actions.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "fencing/failover/clock.h"
#include "fencing/failover/facts.h"

// All writes are compare-and-swap: on a resource version, a UID or both. If this process is killed between
// two writes, or its leadership ends meanwhile, the next leader finds a state that it can continue from, and
// a late write of this one fails. No call is repeated here; the core asks again when it still wants the
// effect.
namespace lunkeeper::fencing {
namespace {

constexpr int kTaintTries = 50;  // within that time

kube::ObjectRef RefOf(const NodeId& fence) { return {kNodeFences, "", fence.value()}; }

kube::ObjectRef RefOf(const PodId& pod) {
  const std::string& id = pod.value();
  const size_t slash = id.find('/');
  return {kube::kPods, id.substr(0, slash), id.substr(slash + 1)};
}

Answer StoredAnswer(const absl::StatusOr<kube::Json>& object) {
  Answer answer = FromApi(object.status());
  if (object.ok()) answer.done.version = Version(kube::TextAt(*object, {"metadata", "resourceVersion"}));
  return answer;
}

// As the control plane's own garbage collector leaves a pod of a node that is gone. By the condition a Job's
// podFailurePolicy can tell this from a failure of the pod.
kube::Json FailedStatus() {
  const auto condition = [](const char* type, const char* value) {
    return kube::Json{{"type", type},
                      {"status", value},
                      {"reason", "FencedByLunkeeper"},
                      {"message", "its node was fenced from its volumes"}};
  };
  return {{"status",
           {{"phase", "Failed"},
            {"reason", "NodeFenced"},
            {"conditions", {condition("DisruptionTarget", "True"), condition("Ready", "False")}}}}};
}

}  // namespace

Answer FromApi(absl::Status status) {
  Answer answer;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      answer.done.outcome = Outcome::kOk;
      break;
    case absl::StatusCode::kNotFound:
      answer.done.outcome = Outcome::kGone;
      break;
    // Both mean that the object is not as the core believes. Its informer will bring the truth.
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
      answer.done.outcome = Outcome::kConflict;
      break;
    default:
      answer.done.outcome = Outcome::kFailed;
  }
  answer.status = std::move(status);
  return answer;
}

kube::Limits KubeActions::CallLimits() const { return {executor_.WallNow() + rules_.first_timeout}; }

Answer KubeActions::RunTimed(const std::string& call,
                             const std::function<Answer(const kube::Limits&)>& action) {
  const absl::Duration began = executor_.SteadyNow();
  Answer answer = action({executor_.WallNow() + times_.TimeFor(call), end_.get_token()});
  times_.NoteAnswer(call, answer.status, executor_.SteadyNow() - began, NowOn(executor_));
  return answer;
}

absl::StatusOr<kube::Json> KubeActions::PatchIfLeading(const kube::ObjectRef& object, const kube::Json& merge,
                                                       const kube::Preconditions& only_if,
                                                       const kube::Limits& limits) {
  if (!rules_.may_write()) return absl::CancelledError("this replica leads no more");
  return client_.Patch(object, merge, only_if, limits);
}

absl::StatusOr<LeaseSeen> KubeActions::ReadLease() {
  LeaseSeen seen;
  seen.asked = NowOn(executor_);  // before the call: what is read is at least as new as this
  ASSIGN_OR_RETURN(kube::Lease lease, kube::ReadLease(client_, lease_, CallLimits()));
  seen.holder = lease.holder;
  seen.version = Version(lease.version);
  absl::MutexLock lock(&mu_);
  last_ = std::move(lease);
  return seen;
}

namespace {

// By a list, for which the watches have the right already. Null: there is no object of that name.
absl::StatusOr<kube::Json> FindObject(kube::KubeClient& client, kube::Selection selection,
                                      const std::string& name, const kube::Limits& limits) {
  kube::Json found;
  selection.fields = "metadata.name=" + name;
  const auto keep = [&](kube::Json object) {
    if (kube::TextAt(object, {"metadata", "name"}) == name) found = std::move(object);
  };
  RETURN_IF_ERROR(client.ListPage(selection, {}, keep, limits).status());
  return found;
}

}  // namespace

// Both at once: a failover waits for them.
Answer KubeActions::ReadKubelet(const fencing::ReadKubelet& call) {
  const std::string name = NameOf(call.node).value();
  absl::StatusOr<kube::Json> lease = absl::UnknownError("not read yet");
  auto reading =
      executor_.StartThread([&, this] { lease = FindObject(client_, kKubeletLeases, name, CallLimits()); });
  const auto node = FindObject(client_, {kube::kNodes}, name, CallLimits());
  reading.reset();
  if (!node.ok()) return FromApi(node.status());
  if (node->is_null()) return FromApi(absl::NotFoundError("there is no such Node"));
  if (!lease.ok()) return FromApi(lease.status());
  const std::string renewal = ReadRenewal(*lease);
  Answer answer = FromApi(absl::OkStatus());
  answer.done.kubelet = KubeletState{Version(renewal), ReadNode(*node).ready, RenewalTime(renewal)};
  return answer;
}

// The duration is for other clients' eyes; the election's own times are the core's settings.
Answer KubeActions::RenewLease(const WriteLease& call) {
  kube::Lease seen;
  {
    absl::MutexLock lock(&mu_);
    seen = last_;
  }
  // The core names the version that its decision rests on; the rest only fills in the object.
  seen.version = call.expected.value();
  const auto written = kube::WriteLease(client_, lease_, seen, call.release ? "" : self_, duration_,
                                        executor_.WallNow(), CallLimits());
  Answer answer = FromApi(written.status());
  if (!written.ok()) return answer;
  answer.done.version = Version(written->version);
  absl::MutexLock lock(&mu_);
  last_ = *written;
  return answer;
}

// One second, as the process is ending: kubelet gives it a limited time, and without this call the lease just
// runs out.
void KubeActions::LeaveLease() {
  kube::Lease seen;
  {
    absl::MutexLock lock(&mu_);
    seen = last_;
  }
  if (seen.holder != self_) return;
  const auto left = kube::WriteLease(client_, lease_, seen, "", duration_, executor_.WallNow(),
                                     {executor_.WallNow() + absl::Seconds(1)});
  if (!left.ok())
    LogWarn("failover", "the lease was not given up", {{"error", std::string(left.status().message())}});
}

void KubeActions::NoteRecord(const NodeId& node, const RecordFacts* seen) {
  const bool released = seen != nullptr && seen->IsReleased();
  if (released) ReleasedFor(seen->fence);
  absl::MutexLock lock(&mu_);
  if (!released) released_.erase(node);
  if (seen == nullptr || released)
    finalizers_.erase(node);
  else
    finalizers_[node] = {seen->fence.version, seen->finalizers};
}

// As the core does with the version: what the watch has brought meanwhile is newer.
void KubeActions::NoteStored(const NodeFence& fence, const kube::Json& object) {
  RecordFacts stored = ReadRecord(object);
  absl::MutexLock lock(&mu_);
  SeenFinalizers& known = finalizers_[fence.node];
  if (known.version == fence.version) known = {stored.fence.version, std::move(stored.finalizers)};
}

std::optional<Finalizers> KubeActions::FinalizersOf(const NodeFence& fence) {
  absl::MutexLock lock(&mu_);
  const auto known = finalizers_.find(fence.node);
  if (known == finalizers_.end() || known->second.version != fence.version) return std::nullopt;
  return known->second.finalizers;
}

// The core fences as soon as it sees what is written here. So a record that a person made, and may delete at
// any time, gets our finalizer in the same write. Our own have had it from the start. A fence without volumes
// has nothing to lift, so its object may go at once, and one that is being deleted can get no finalizer.
absl::StatusOr<kube::Json> KubeActions::ChangeRecord(const NodeFence& fence, const Timeline& timeline,
                                                     const kube::Limits& limits) {
  kube::Json patch = RecordPatch(fence, timeline);
  if (fence.is_manual() && !fence.deleting && !fence.volumes.empty()) {
    const auto known = FinalizersOf(fence);
    if (!known) return absl::AbortedError("its NodeFence has changed");
    if (!HasOurs(*known)) patch["metadata"]["finalizers"] = WithOurs(*known);
  }
  return PatchIfLeading(RefOf(fence.node), patch, {fence.uid.value(), fence.version.value()}, limits);
}

// By this replica's own clock: the object has the time of its deletion by the API server's.
absl::Duration KubeActions::ReleasedFor(const NodeFence& fence) {
  const absl::Duration now = executor_.SteadyNow();
  absl::MutexLock lock(&mu_);
  auto& [uid, since] = released_[fence.node];
  if (uid != fence.uid) uid = fence.uid, since = now;
  return now - since;
}

// A hook that has lost its object is better than pods without their data. The next creation succeeds.
void KubeActions::DropStuckRecord(const kube::Json& object, const kube::Limits& limits) {
  const RecordFacts old = ReadRecord(object);
  if (!old.IsReleased() || ReleasedFor(old.fence) < rules_.others_time) return;
  const auto dropped =
      PatchIfLeading(RefOf(old.fence.node), {{"metadata", {{"finalizers", kube::Json::array()}}}},
                     {old.fence.uid.value(), old.fence.version.value()}, limits);
  LogWarn("failover",
          "an old NodeFence keeps its node from being failed over: others' finalizers are removed",
          {{"fence", old.fence.node.value()},
           {"finalizers", absl::StrJoin(old.finalizers, " ")},
           {"status", dropped.status().ToString()}});
}

Answer KubeActions::PutRecord(const PutNodeFence& call, const Timeline& timeline) {
  return RunTimed("put " + call.fence.node.value(),
                  [&](const kube::Limits& limits) { return StoreRecord(call, timeline, limits); });
}

// Creation needs no precondition: the name is the node id, so a second record of the same node conflicts.
Answer KubeActions::StoreRecord(const PutNodeFence& call, const Timeline& timeline,
                                const kube::Limits& limits) {
  const NodeFence& fence = call.fence;
  const bool is_new = fence.version.empty();
  const auto stored = is_new ? client_.Create({kNodeFences, "", ""}, NewRecord(fence, timeline), limits)
                             : ChangeRecord(fence, timeline, limits);
  if (stored.ok()) NoteStored(fence, *stored);
  Answer answer = StoredAnswer(stored);
  if (answer.done.outcome != Outcome::kConflict) return answer;
  const auto found = FindObject(client_, {kNodeFences}, fence.node.value(), limits);
  if (!found.ok()) return answer;
  const RecordFacts now = ReadRecord(*found);
  if (now.fence.version == fence.version) {
    // All is as the core believes: a webhook has refused the write, or only we had not seen the object yet.
    answer.done.outcome = Outcome::kFailed;
    NoteRecord(fence.node, &now);
  } else if (is_new) {
    DropStuckRecord(*found, limits);
  }
  return answer;
}

Answer KubeActions::RemoveRecord(const RemoveNodeFence& call) {
  return RunTimed("remove " + call.uid.value(),
                  [&](const kube::Limits& limits) { return DeleteRecord(call, limits); });
}

// The finalizer keeps the object until the last call. When this process dies before that, the next leader
// sees an object that is being deleted, and finishes. It is not deleted again then: a slow webhook would take
// the time from the last call each time.
Answer KubeActions::DeleteRecord(const RemoveNodeFence& call, const kube::Limits& limits) {
  const auto ref = RefOf(call.node);
  if (!call.deleting) {
    const absl::Status deleted =
        client_.Delete(ref, {call.uid.value(), call.version.value()}, std::nullopt, limits);
    if (!deleted.ok()) return FromApi(deleted);
  }
  const auto left = FindObject(client_, {kNodeFences}, call.node.value(), limits);
  if (!left.ok()) return FromApi(left.status());
  if (kube::TextAt(*left, {"metadata", "uid"}) != call.uid.value()) return FromApi(absl::OkStatus());
  const std::string version = kube::TextAt(*left, {"metadata", "resourceVersion"});
  if (call.deleting && version != call.version.value())
    return FromApi(absl::AbortedError("its NodeFence has changed"));
  const auto released =
      PatchIfLeading(ref, {{"metadata", {{"finalizers", WithoutOurs(ReadRecord(*left).finalizers)}}}},
                     {call.uid.value(), version}, limits);
  return FromApi(absl::IsNotFound(released.status()) ? absl::OkStatus() : released.status());
}

Answer KubeActions::WriteTaint(const SetTaint& call, const Uid& uid, const std::string& taints) {
  const std::string what = call.taint == OurTaint::kFenced ? "taint " : "plugin taint ";
  return RunTimed(what + call.node.value(),
                  [&](const kube::Limits& limits) { return StoreTaints(call, uid, taints, limits); });
}

// What counts is that the taints are those which the core has seen. A kubelet may write to the status of its
// Node as often as it likes, and one that was broken into could keep the taint away for ever with that.
Answer KubeActions::StoreTaints(const SetTaint& call, const Uid& uid, const std::string& taints,
                                const kube::Limits& limits) {
  const bool of_fence = call.taint == OurTaint::kFenced;
  const std::string value = call.value.empty() ? ""
                            : of_fence         ? TaintValueOf(NodeId(call.value))
                                               : kPluginSilent;
  const auto after = WithTaint(taints, value, of_fence ? kTaintKey : kPluginTaintKey);
  std::string version = call.expected.value();
  for (int tries = 0;; ++tries) {
    const auto stored = PatchIfLeading({kube::kNodes, "", call.node.value()}, {{"spec", {{"taints", after}}}},
                                       {uid.value(), version}, limits);
    Answer answer = StoredAnswer(stored);
    if (!absl::IsAborted(stored.status()) || tries >= kTaintTries) return answer;
    const auto now = FindObject(client_, {kube::kNodes}, call.node.value(), limits);
    if (!now.ok()) return answer;
    const auto node = ReadNode(*now);
    // Nobody has changed it: a webhook has refused the write with a conflict.
    const bool same = node.uid == uid && node.version.value() == version;
    if (same) answer.done.outcome = Outcome::kFailed;
    if (same || node.uid != uid || node.taints != taints) return answer;
    version = node.version.value();
  }
}

// An older role allows no more than the deletion. Any other error may pass, and the pod is tried again.
Answer KubeActions::FailPod(const DeletePod& call) {
  auto pod = RefOf(call.pod);
  pod.subresource = "status";
  const Answer failed = RunTimed("fail " + call.uid.value(), [&](const kube::Limits& limits) {
    return FromApi(client_.Patch(pod, FailedStatus(), {.uid = call.uid.value()}, limits).status());
  });
  if (!absl::IsPermissionDenied(failed.status) && !absl::IsInvalidArgument(failed.status)) return failed;
  LogWarn("failover", "a Job's pod cannot be marked as failed, and may not be replaced",
          {{"pod", call.pod.value()}, {"error", std::string(failed.status.message())}});
  return FromApi(absl::OkStatus());
}

Answer KubeActions::RemovePod(const DeletePod& call) {
  // Grace zero removes the object at once, which is right only after the fence: the node may still run the
  // pod.
  const auto grace = call.grace == Grace::kNone ? std::make_optional(absl::ZeroDuration()) : std::nullopt;
  return RunTimed("delete " + call.uid.value(), [&](const kube::Limits& limits) {
    return FromApi(client_.Delete(RefOf(call.pod), {.uid = call.uid.value()}, grace, limits));
  });
}

bool KubeActions::IsSlow(const DeletePod& call) const {
  return times_.IsSlow("fail " + call.uid.value()) || times_.IsSlow("delete " + call.uid.value());
}

Answer KubeActions::ChargeVolume(const fencing::ChargeVolume& call, const std::string& name,
                                 const Version& version) {
  kube::Json value = nullptr;
  if (!call.nodes.empty()) value = MountDeathsOf(call.nodes);
  return RunTimed("charge " + name, [&](const kube::Limits& limits) {
    return StoredAnswer(client_.Patch({kPersistentVolumes, "", name},
                                      {{"metadata", {{"annotations", {{kMountDeathsKey, value}}}}}},
                                      {"", version.value()}, limits));
  });
}

// `kubectl describe` shows the events of an object's uid, which for the lease is known only here.
void KubeActions::RecordEvent(kube::ObjectEvent event) {
  event.reporter_instance = self_;
  if (event.kind == kube::kLeaseKind) {
    absl::MutexLock lock(&mu_);
    event.uid = last_.uid;
  }
  const absl::Status status =
      kube::RecordEvent(client_, event, executor_.WallNow(), {CallLimits().until, end_.get_token()});
  if (!status.ok())
    LogDebug("failover", "an event was not recorded", {{"error", std::string(status.message())}});
}

}  // namespace lunkeeper::fencing
