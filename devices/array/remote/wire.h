#pragma once
// Between the domain's types and array.proto. Pure functions, thread-safe.
//
// The peer may be a version older or newer. A request with an enumeration's value that is not known is
// refused with INVALID_ARGUMENT: it could get more than it asked for. What an agent answers is always
// readable, since one grant that cannot be read must not look like a free volume, nor cost the whole list: an
// unknown value stands for the known one that promises least. Access: exclusive. Owner: the orchestrator.
// Durability: cached. Provisioning: thin.

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/array.h"
#include "devices/array/remote/array.pb.h"

namespace lunkeeper::wire {

namespace v1 = lunkeeper::array::v1;

// Metadata: the array that is meant, and in an answer the array that gives it.
inline constexpr char kArrayKey[] = "lunkeeper-array";
// Metadata: in an answer without kArrayKey, that an agent gives it for itself, as it is not the array's now.
inline constexpr char kNotServingKey[] = "lunkeeper-not-serving";
// Metadata: the newest copy of its pool that the client knows, and in an answer the one that gives it.
inline constexpr char kPoolKey[] = "lunkeeper-pool";

v1::VolumeSpec ToMessage(const VolumeSpec& spec);
v1::Volume ToMessage(const Volume& volume);
v1::Snapshot ToMessage(const Snapshot& snapshot);
v1::SnapshotGroup ToMessage(const SnapshotGroup& group);
v1::ListBlocksResponse ToMessage(const BlockPage& page);
v1::CapacityResponse ToMessage(const PoolCapacity& capacity);
v1::Grant ToMessage(const Grant& grant);
v1::Fence ToMessage(const FenceRecord& fence);
v1::Session ToMessage(const GrantSession& session);
v1::LandedHeartbeat ToMessage(const LandedHeartbeat& heartbeat);
v1::Access ToMessage(Access access);
v1::GrantOwner ToMessage(GrantOwner owner);
v1::VolumeMode ToMessage(VolumeMode mode);
v1::FenceRequest ToMessage(Term term, const FenceRequest& request);
v1::ModifyVolumeRequest ToMessage(const VolumeId& id, const VolumeChange& change);

// Answers.
Volume FromMessage(const v1::Volume& volume);
Snapshot FromMessage(const v1::Snapshot& snapshot);
SnapshotGroup FromMessage(const v1::SnapshotGroup& group);
BlockPage FromMessage(const v1::ListBlocksResponse& page);
PoolCapacity FromMessage(const v1::CapacityResponse& capacity);
Grant FromMessage(const v1::Grant& grant);
FenceRecord FromMessage(const v1::Fence& fence);
GrantSession FromMessage(const v1::Session& session);
LandedHeartbeat FromMessage(const v1::LandedHeartbeat& heartbeat);

// Requests.
absl::StatusOr<VolumeSpec> FromMessage(const v1::VolumeSpec& spec);
absl::StatusOr<Access> FromMessage(v1::Access access);
absl::StatusOr<GrantOwner> FromMessage(v1::GrantOwner owner);
absl::StatusOr<VolumeMode> FromMessage(v1::VolumeMode mode);
FenceRequest FromMessage(const v1::FenceRequest& request);
absl::StatusOr<VolumeChange> FromMessage(const v1::ModifyVolumeRequest& request);

}  // namespace lunkeeper::wire
