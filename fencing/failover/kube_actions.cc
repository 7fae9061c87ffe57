#include "fencing/failover/kube_actions.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "fencing/failover/clock.h"
#include "fencing/failover/facts.h"

namespace lunkeeper::fencing {
namespace {

constexpr absl::Duration kCall = absl::Seconds(3);

kube::Limits Soon() { return {absl::Now() + kCall}; }

kube::ObjectRef RefOf(const NodeId& fence) { return {kNodeFences, "", fence.value()}; }

Answer Stored(const absl::StatusOr<kube::Json>& object) {
  Answer answer = FromApi(object.status());
  if (object.ok()) answer.done.version = Version(kube::TextAt(*object, {"metadata", "resourceVersion"}));
  return answer;
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

absl::StatusOr<LeaseSeen> KubeActions::ReadLease() {
  LeaseSeen seen;
  seen.asked = MonotonicNow();
  ASSIGN_OR_RETURN(kube::Lease lease, kube::ReadLease(client_, lease_, Soon()));
  seen.holder = lease.holder;
  seen.version = Version(lease.version);
  absl::MutexLock lock(&mu_);
  last_ = std::move(lease);
  return seen;
}

Answer KubeActions::Run(const WriteLease& call) {
  kube::Lease seen;
  {
    absl::MutexLock lock(&mu_);
    seen = last_;
  }
  seen.version = call.expected.value();
  const auto written = kube::WriteLease(client_, lease_, seen, self_, duration_, absl::Now(), Soon());
  Answer answer = FromApi(written.status());
  if (!written.ok()) return answer;
  answer.done.version = Version(written->version);
  absl::MutexLock lock(&mu_);
  last_ = *written;
  return answer;
}

void KubeActions::LeaveLease() {
  kube::Lease seen;
  {
    absl::MutexLock lock(&mu_);
    seen = last_;
  }
  if (seen.holder != self_) return;
  const auto left =
      kube::WriteLease(client_, lease_, seen, "", duration_, absl::Now(), {absl::Now() + absl::Seconds(1)});
  if (!left.ok())
    LogWarn("failover", "the lease was not given up", {{"error", std::string(left.status().message())}});
}

Answer KubeActions::Run(const PutNodeFence& call, const Timeline& timeline) {
  if (call.fence.version.empty())
    return Stored(client_.Create({kNodeFences, "", ""}, NewRecord(call.fence, timeline), Soon()));
  return Stored(client_.Patch(RefOf(call.fence.node), RecordPatch(call.fence, timeline),
                              {call.fence.uid.value(), call.fence.version.value()}, Soon()));
}

// The finalizer keeps it until the second call, so that one which is cut short is seen, and finished.
Answer KubeActions::Run(const RemoveNodeFence& call) {
  const auto ref = RefOf(call.node);
  const absl::Status deleted =
      client_.Delete(ref, {call.uid.value(), call.version.value()}, std::nullopt, Soon());
  if (!deleted.ok()) return FromApi(deleted);
  const auto released =
      client_.Patch(ref, {{"metadata", {{"finalizers", nullptr}}}}, {call.uid.value(), ""}, Soon());
  return FromApi(absl::IsNotFound(released.status()) ? absl::OkStatus() : released.status());
}

Answer KubeActions::Run(const SetTaint& call, const Uid& uid, const std::string& taints) {
  const std::string value = call.value.empty() ? "" : TaintValueOf(NodeId(call.value));
  return Stored(client_.Patch({kube::kNodes, "", call.node.value()},
                              {{"spec", {{"taints", WithTaint(taints, value)}}}},
                              {uid.value(), call.expected.value()}, Soon()));
}

Answer KubeActions::Run(const DeletePod& call) {
  const std::string& id = call.pod.value();
  const size_t slash = id.find('/');
  const kube::ObjectRef pod{kube::kPods, id.substr(0, slash), id.substr(slash + 1)};
  const auto grace = call.grace == Grace::kNone ? std::make_optional(absl::ZeroDuration()) : std::nullopt;
  return FromApi(client_.Delete(pod, {.uid = call.uid.value()}, grace, Soon()));
}

void KubeActions::Record(kube::ObjectEvent event) {
  event.reporter_instance = self_;
  const absl::Status status = kube::RecordEvent(client_, event, absl::Now(), Soon());
  if (!status.ok())
    LogDebug("failover", "an event was not recorded", {{"error", std::string(status.message())}});
}

}  // namespace lunkeeper::fencing
