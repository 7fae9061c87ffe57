#include "fencing/agent/coordinator_grant_source.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// The replica's wait ends this much before the call's deadline. Without it a vain wait would end as gRPC's
// timeout, and the answer that says which node holds the volume would be lost.
constexpr absl::Duration kAnswerMargin = absl::Milliseconds(300);
// A limit for questions that no living replica takes this long to answer. A caller may wait for minutes, and
// should not spend them on one silent replica.
constexpr absl::Duration kReplicaTimeout = absl::Seconds(10);

// Each method makes one call, which ReplicaTable::CallAny may send to several replicas in turn. That is safe
// because the protocol is idempotent: the same node acquiring again gets the grant it has, and a release
// names the generation it ends.
class CoordinatorGrantSource final : public GrantSource {
 public:
  CoordinatorGrantSource(ReplicaTable& replicas, const NodeId& node, Executor& executor)
      : replicas_(replicas), node_(node), executor_(executor) {}

  absl::StatusOr<Grant> Acquire(const VolumeId& volume, const WantedUse& use, absl::Duration wait) override {
    const absl::Duration end = executor_.SteadyNow() + wait;
    Grant grant;
    RETURN_IF_ERROR(AskReplicas(
        "take", volume, wait + kAnswerMargin, [&](const ReplicaConnection& replica, absl::Duration limit) {
          // The replicas that were asked before have used up some of the wait.
          const auto left = std::max(end - executor_.SteadyNow(), absl::ZeroDuration());
          return replica.AcquireGrant(node_, volume, use, left, limit, &grant);
        }));
    return grant;
  }

  absl::Status Release(const VolumeId& volume, Generation generation, absl::Time deadline) override {
    return AskReplicas("give back", volume, deadline - executor_.WallNow(),
                       [&](const ReplicaConnection& replica, absl::Duration limit) {
                         return replica.ReleaseGrant(node_, volume, generation, limit);
                       });
  }

  absl::StatusOr<std::vector<HeldGrant>> Held(const VolumeId& volume, absl::Time deadline) override {
    std::vector<HeldGrant> held;
    RETURN_IF_ERROR(AskReplicas("look up", volume, std::min(deadline - executor_.WallNow(), kReplicaTimeout),
                                [&](const ReplicaConnection& replica, absl::Duration limit) {
                                  return replica.ListGrants(node_, volume, limit, &held);
                                }));
    return held;
  }

 private:
  absl::Status AskReplicas(const char* what, const VolumeId& volume, absl::Duration within,
                           const ReplicaTable::Call& call) {
    return replicas_.CallAny(
        absl::StrCat(what, " the grant of volume ", volume.empty() ? "(all)" : volume.value()), within, call);
  }

  ReplicaTable& replicas_;
  const NodeId node_;
  Executor& executor_;
};

}  // namespace

std::unique_ptr<GrantSource> MakeCoordinatorGrantSource(ReplicaTable& replicas, const NodeId& node,
                                                        Executor& executor) {
  return std::make_unique<CoordinatorGrantSource>(replicas, node, executor);
}

}  // namespace lunkeeper
