// Between domain types and messages, one pair of functions per type. Enumerations are converted value by
// value, not by number: array.proto keeps 0 for "unspecified", which an older or newer peer may send and
// which must not become a default that allows more than was asked for. Times and durations travel as
// nanoseconds.
#include "devices/array/remote/wire.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/connection_message.h"

namespace lunkeeper::wire {
namespace {

absl::Status Unknown(const char* what, int value) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " ", value, ": not known here: the array agent and its client must be of one age"));
}

absl::StatusOr<Provisioning> From(v1::Provisioning value) {
  if (value == v1::PROVISIONING_THIN) return Provisioning::kThin;
  if (value == v1::PROVISIONING_THICK) return Provisioning::kThick;
  return Unknown("provisioning", value);
}

absl::StatusOr<Durability> From(v1::Durability value) {
  if (value == v1::DURABILITY_CACHED) return Durability::kCached;
  if (value == v1::DURABILITY_SYNC) return Durability::kSync;
  return Unknown("durability", value);
}

v1::Durability To(Durability value) {
  return value == Durability::kSync ? v1::DURABILITY_SYNC : v1::DURABILITY_CACHED;
}

}  // namespace

v1::VolumeSpec To(const VolumeSpec& spec) {
  v1::VolumeSpec out;
  out.set_name(spec.name);
  out.set_size_bytes(spec.size_bytes);
  out.set_provisioning(spec.provisioning == Provisioning::kThick ? v1::PROVISIONING_THICK
                                                                 : v1::PROVISIONING_THIN);
  out.set_durability(To(spec.durability));
  out.set_source_snapshot(spec.source_snapshot.value());
  out.set_source_volume(spec.source_volume.value());
  return out;
}

// An empty id is no source: ids are never empty.
absl::StatusOr<VolumeSpec> From(const v1::VolumeSpec& spec) {
  VolumeSpec out;
  out.name = spec.name();
  out.size_bytes = spec.size_bytes();
  ASSIGN_OR_RETURN(out.provisioning, From(spec.provisioning()));
  ASSIGN_OR_RETURN(out.durability, From(spec.durability()));
  out.source_snapshot = SnapshotId(spec.source_snapshot());
  out.source_volume = VolumeId(spec.source_volume());
  return out;
}

v1::Volume To(const Volume& volume) {
  v1::Volume out;
  out.set_volume_id(volume.id.value());
  *out.mutable_spec() = To(volume.spec);
  out.set_serial(volume.serial);
  out.set_created_unix_nanos(absl::ToUnixNanos(volume.created));
  return out;
}

absl::StatusOr<Volume> From(const v1::Volume& volume) {
  Volume out;
  out.id = VolumeId(volume.volume_id());
  ASSIGN_OR_RETURN(out.spec, From(volume.spec()));
  out.serial = volume.serial();
  out.created = absl::FromUnixNanos(volume.created_unix_nanos());
  return out;
}

v1::Snapshot To(const Snapshot& snapshot) {
  v1::Snapshot out;
  out.set_snapshot_id(snapshot.id.value());
  out.set_name(snapshot.name);
  out.set_source_volume_id(snapshot.source.value());
  out.set_size_bytes(snapshot.size_bytes);
  out.set_created_unix_nanos(absl::ToUnixNanos(snapshot.created));
  out.set_ready(snapshot.ready);
  return out;
}

absl::StatusOr<Snapshot> From(const v1::Snapshot& snapshot) {
  return Snapshot{.id = SnapshotId(snapshot.snapshot_id()),
                  .name = snapshot.name(),
                  .source = VolumeId(snapshot.source_volume_id()),
                  .size_bytes = snapshot.size_bytes(),
                  .created = absl::FromUnixNanos(snapshot.created_unix_nanos()),
                  .ready = snapshot.ready()};
}

v1::CapacityResponse To(const PoolCapacity& capacity) {
  v1::CapacityResponse out;
  out.set_total_bytes(capacity.total_bytes);
  out.set_available_bytes(capacity.available_bytes);
  out.set_smallest_volume_bytes(capacity.smallest_volume_bytes);
  out.set_largest_volume_bytes(capacity.largest_volume_bytes);
  return out;
}

PoolCapacity From(const v1::CapacityResponse& capacity) {
  return {capacity.total_bytes(), capacity.available_bytes(), capacity.smallest_volume_bytes(),
          capacity.largest_volume_bytes()};
}

v1::Grant To(const Grant& grant) {
  v1::Grant out;
  out.set_volume_id(grant.volume.value());
  out.set_node_id(grant.node.value());
  out.set_access(To(grant.access));
  out.set_owner(To(grant.owner));
  out.set_generation(grant.generation);
  *out.mutable_connection() = ToMessage(grant.connection);
  out.set_serial(grant.serial);
  out.set_size_bytes(grant.size_bytes);
  out.set_durability(To(grant.durability));
  return out;
}

// The CHAP secret is empty in what a reader receives (array_service.cc).
absl::StatusOr<Grant> From(const v1::Grant& grant) {
  Grant out;
  out.volume = VolumeId(grant.volume_id());
  out.node = NodeId(grant.node_id());
  ASSIGN_OR_RETURN(out.access, From(grant.access()));
  ASSIGN_OR_RETURN(out.owner, From(grant.owner()));
  out.generation = grant.generation();
  out.connection = FromMessage(grant.connection());
  out.serial = grant.serial();
  out.size_bytes = grant.size_bytes();
  ASSIGN_OR_RETURN(out.durability, From(grant.durability()));
  return out;
}

v1::Fence To(const FenceRecord& fence) {
  v1::Fence out;
  out.set_node_id(fence.node.value());
  out.set_generation(fence.generation);
  out.set_term(fence.term);
  for (const VolumeId& volume : fence.volumes) out.add_volume_ids(volume.value());
  return out;
}

absl::StatusOr<FenceRecord> From(const v1::Fence& fence) {
  return FenceRecord{.node = NodeId(fence.node_id()),
                     .generation = fence.generation(),
                     .term = fence.term(),
                     .volumes = {fence.volume_ids().begin(), fence.volume_ids().end()}};
}

v1::Session To(const GrantSession& session) {
  v1::Session out;
  out.set_volume_id(session.volume.value());
  out.set_node_id(session.node.value());
  out.set_reads(session.reads);
  out.set_writes(session.writes);
  out.set_read_bytes(session.read_bytes);
  out.set_written_bytes(session.written_bytes);
  return out;
}

absl::StatusOr<GrantSession> From(const v1::Session& session) {
  return GrantSession{.volume = VolumeId(session.volume_id()),
                      .node = NodeId(session.node_id()),
                      .reads = session.reads(),
                      .writes = session.writes(),
                      .read_bytes = session.read_bytes(),
                      .written_bytes = session.written_bytes()};
}

// An age and not a time: the clocks of the two machines need not agree.
v1::LandedHeartbeat To(const LandedHeartbeat& heartbeat) {
  v1::LandedHeartbeat out;
  out.set_node_id(heartbeat.node.value());
  out.set_sequence(heartbeat.sequence);
  out.set_age_millis(static_cast<uint64_t>(absl::ToInt64Milliseconds(heartbeat.age)));
  return out;
}

absl::StatusOr<LandedHeartbeat> From(const v1::LandedHeartbeat& heartbeat) {
  return LandedHeartbeat{.node = NodeId(heartbeat.node_id()),
                         .sequence = heartbeat.sequence(),
                         .age = absl::Milliseconds(heartbeat.age_millis())};
}

v1::Access To(Access access) {
  if (access == Access::kReadOnly) return v1::ACCESS_READ_ONLY;
  return access == Access::kSharedWrite ? v1::ACCESS_SHARED_WRITE : v1::ACCESS_EXCLUSIVE;
}

absl::StatusOr<Access> From(v1::Access access) {
  if (access == v1::ACCESS_EXCLUSIVE) return Access::kExclusive;
  if (access == v1::ACCESS_READ_ONLY) return Access::kReadOnly;
  if (access == v1::ACCESS_SHARED_WRITE) return Access::kSharedWrite;
  return Unknown("access", access);
}

v1::GrantOwner To(GrantOwner owner) {
  return owner == GrantOwner::kOrchestrator ? v1::GRANT_OWNER_ORCHESTRATOR : v1::GRANT_OWNER_NODE;
}

absl::StatusOr<GrantOwner> From(v1::GrantOwner owner) {
  if (owner == v1::GRANT_OWNER_NODE) return GrantOwner::kNode;
  if (owner == v1::GRANT_OWNER_ORCHESTRATOR) return GrantOwner::kOrchestrator;
  return Unknown("grant owner", owner);
}

}  // namespace lunkeeper::wire
