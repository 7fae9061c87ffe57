#include "fencing/coordinator/node_requests.h"

#include <utility>

#include "base/status_macros.h"
#include "devices/node_id.h"

namespace lunkeeper {

absl::Status NodeRequests::LeavingError() {
  return absl::UnavailableError("this controller is stopping; ask another replica");
}

absl::StatusOr<Grant> NodeRequests::AcquireGrant(GrantRequest wanted, absl::Duration wait) {
  if (leaving_) return LeavingError();
  RETURN_IF_ERROR(CheckUse(wanted.node, wanted.volume));
  wanted.most = most_volumes_;
  // Checked by the array while it waits, so that a caller that hung up leaves its place in the queue.
  wanted.abandoned = [this, hung_up = std::move(wanted.abandoned)] {
    return leaving_ || (hung_up && hung_up());
  };
  absl::StatusOr<Grant> grant = grants_.AcquireGrant(wanted, wait);
  // UNAVAILABLE instead of CANCELLED, so that the node asks another replica.
  return absl::IsCancelled(grant.status()) && leaving_ ? LeavingError() : grant;
}

// What a node holds it may go on asking for: its pod may be gone while kubelet still repeats the call.
absl::Status NodeRequests::CheckUse(const NodeId& node, const VolumeId& volume) {
  if (uses_ == nullptr) return absl::OkStatus();
  const absl::Status use = uses_->CheckUse(MachineOf(node), volume);
  if (use.ok()) return use;
  ASSIGN_OR_RETURN(const auto held,
                   grants_.ListGrants({.volume = volume, .node = node, .holders_only = true}));
  return held.empty() ? use : absl::OkStatus();
}

absl::Status NodeRequests::ReleaseGrant(const NodeId& node, const VolumeId& volume, Generation generation) {
  if (leaving_) return LeavingError();
  // It would mean "whatever grant there is", which only the controller itself may release.
  if (generation == kAnyGeneration) return absl::InvalidArgumentError("generation: is required");
  const absl::Status status = grants_.ReleaseGrant(volume, node, GrantOwner::kNode, generation);
  // A deleted volume has no grants, so a repeated release of one is done.
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<Grant>> NodeRequests::ListGrants(const NodeId& node, const VolumeId& volume) {
  if (leaving_) return LeavingError();
  return grants_.ListGrants({volume, node});
}

absl::StatusOr<Connection> NodeRequests::OpenHeartbeatLun(const NodeId& node, const std::string& array,
                                                          bool signs) {
  if (leaving_) return LeavingError();
  if (const auto found = FindArray(arrays_, array))
    return found->fences().OpenHeartbeatLun({.node = node, .signs = signs});
  return absl::NotFoundError("array: there is none of this name here; correct the node's --array-name");
}

}  // namespace lunkeeper
