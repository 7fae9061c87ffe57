#include "fencing/agent/coordinator_grant_source.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "fencing/protocol/messages.h"

namespace lunkeeper {
namespace {

namespace v1 = coordinator::v1;

// The replica's wait ends this much before the call's deadline. Without it a vain wait would end as gRPC's
// timeout, and the answer that says which node holds the volume would be lost.
constexpr absl::Duration kAnswerMargin = absl::Milliseconds(300);
// A limit for questions that no living replica takes this long to answer. A caller may wait for minutes, and
// should not spend them on one silent replica.
constexpr absl::Duration kReplicaTimeout = absl::Seconds(10);

// Each method makes one call, which Replicas::CallAny may send to several replicas in turn. That is safe
// because the protocol is idempotent: the same node acquiring again gets the grant it has, and a release
// names the generation it ends.
class CoordinatorGrantSource final : public GrantSource {
 public:
  CoordinatorGrantSource(Replicas& replicas, const NodeId& node) : replicas_(replicas), node_(node) {}

  absl::StatusOr<Grant> Acquire(const VolumeId& volume, const WantedUse& use, absl::Duration wait) override {
    const SteadyDeadline deadline(wait);
    v1::AcquireRequest request;
    request.set_node(node_.value());
    request.set_volume_id(volume.value());
    request.set_access(WriteAccess(use.access));
    request.set_mode(WriteMode(use.mode));
    v1::Grant response;
    const absl::Time until = absl::Now() + wait + kAnswerMargin;
    RETURN_IF_ERROR(AskReplicas("take", volume, until, [&](auto& stub, auto* context) {
      // Computed for each attempt: the replicas that were asked before have used up some of the wait.
      request.set_wait_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(deadline.left())));
      return stub.Acquire(context, request, &response);
    }));
    return ReadGrant(request, response);
  }

  absl::Status Release(const VolumeId& volume, Generation generation, absl::Time deadline) override {
    v1::ReleaseRequest request;
    request.set_node(node_.value());
    request.set_volume_id(volume.value());
    request.set_generation(generation);
    v1::ReleaseResponse response;
    return AskReplicas("give back", volume, deadline,
                       [&](auto& stub, auto* context) { return stub.Release(context, request, &response); });
  }

  absl::StatusOr<std::vector<HeldGrant>> Held(const VolumeId& volume, absl::Time deadline) override {
    v1::HeldRequest request;
    request.set_node(node_.value());
    request.set_volume_id(volume.value());
    v1::HeldResponse response;
    RETURN_IF_ERROR(
        AskReplicas("look up", volume, std::min(deadline, absl::Now() + kReplicaTimeout),
                    [&](auto& stub, auto* context) { return stub.Held(context, request, &response); }));
    std::vector<HeldGrant> held;
    for (const auto& grant : response.grants()) {
      held.push_back({VolumeId(grant.volume_id()), grant.generation(), Iqn(grant.target()),
                      grant.taken_by_orchestrator() ? GrantOwner::kOrchestrator : GrantOwner::kNode});
    }
    return held;
  }

 private:
  absl::Status AskReplicas(const char* what, const VolumeId& volume, absl::Time deadline,
                           const Replicas::Call& call) {
    return replicas_.CallAny(
        absl::StrCat(what, " the grant of volume ", volume.empty() ? "(all)" : volume.value()), deadline,
        call);
  }

  Replicas& replicas_;
  const NodeId node_;
};

}  // namespace

std::unique_ptr<GrantSource> MakeCoordinatorGrantSource(Replicas& replicas, const NodeId& node) {
  return std::make_unique<CoordinatorGrantSource>(replicas, node);
}

}  // namespace lunkeeper
