#pragma once
// Between the domain's types and array.proto. Pure functions,
// thread-safe. What comes from the wire was written by others: an enumeration's value that is not known is
// INVALID_ARGUMENT.

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/array.h"
#include "devices/array/remote/array.pb.h"

namespace lunkeeper::wire {

namespace v1 = lunkeeper::array::v1;

// Metadata: the array that is meant, and in an answer the array that gives it.
inline constexpr char kArrayKey[] = "lunkeeper-array";

v1::VolumeSpec To(const VolumeSpec& spec);
v1::Volume To(const Volume& volume);
v1::Snapshot To(const Snapshot& snapshot);
v1::CapacityResponse To(const PoolCapacity& capacity);
v1::Grant To(const Grant& grant);
v1::Fence To(const FenceRecord& fence);
v1::Session To(const GrantSession& session);
v1::LandedHeartbeat To(const LandedHeartbeat& heartbeat);
v1::Access To(Access access);
v1::GrantOwner To(GrantOwner owner);

absl::StatusOr<VolumeSpec> From(const v1::VolumeSpec& spec);
absl::StatusOr<Volume> From(const v1::Volume& volume);
absl::StatusOr<Snapshot> From(const v1::Snapshot& snapshot);
PoolCapacity From(const v1::CapacityResponse& capacity);
absl::StatusOr<Grant> From(const v1::Grant& grant);
absl::StatusOr<FenceRecord> From(const v1::Fence& fence);
absl::StatusOr<GrantSession> From(const v1::Session& session);
absl::StatusOr<LandedHeartbeat> From(const v1::LandedHeartbeat& heartbeat);
absl::StatusOr<Access> From(v1::Access access);
absl::StatusOr<GrantOwner> From(v1::GrantOwner owner);

// Code and message stay as they are: the two lists of codes share names and numbers.

}  // namespace lunkeeper::wire
