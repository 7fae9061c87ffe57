// Between domain types and messages, one pair of functions per type. Enumerations are converted value by
// value, not by number: array.proto keeps 0 for "unspecified", which an older or newer peer may send and
// which must not become a default that allows more than was asked for. Times and durations travel as
// nanoseconds. wire.h says what becomes of values that are not known.
#include "devices/array/remote/wire.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/connection_message.h"
#include "devices/node_id.h"

namespace lunkeeper::wire {

using lunkeeper::FromMessage;  // of connections
using lunkeeper::ToMessage;

namespace {

absl::Status Unknown(const char* what, int value) {
  return absl::InvalidArgumentError(absl::StrCat(what, " ", value,
                                                 ": not known here: the array agent and its client are of "
                                                 "different versions: upgrade the agents first"));
}

absl::StatusOr<Provisioning> FromMessage(v1::Provisioning value) {
  if (value == v1::PROVISIONING_THIN) return Provisioning::kThin;
  if (value == v1::PROVISIONING_THICK) return Provisioning::kThick;
  return Unknown("provisioning", value);
}

absl::StatusOr<Durability> FromMessage(v1::Durability value) {
  if (value == v1::DURABILITY_CACHED) return Durability::kCached;
  if (value == v1::DURABILITY_SYNC) return Durability::kSync;
  return Unknown("durability", value);
}

v1::Durability ToMessage(Durability value) {
  return value == Durability::kSync ? v1::DURABILITY_SYNC : v1::DURABILITY_CACHED;
}

v1::VolumeLimits ToMessage(const VolumeLimits& limits) {
  v1::VolumeLimits out;
  out.set_iops(limits.iops);
  out.set_bytes_per_second(limits.bytes_per_second);
  out.set_version(limits.version);
  return out;
}

VolumeLimits FromMessage(const v1::VolumeLimits& limits) {
  return {.iops = limits.iops(), .bytes_per_second = limits.bytes_per_second(), .version = limits.version()};
}

// A use that is not known is one that this program never asks for.
VolumeUses ReadUses(const v1::VolumeSpec& spec) {
  VolumeUses uses;
  for (const v1::VolumeUse& use : spec.uses()) {
    const auto access = wire::FromMessage(use.access());
    const auto mode = wire::FromMessage(use.mode());
    if (access.ok() && mode.ok()) uses.Add(*access, *mode);
  }
  return uses;
}

// All but what an enumeration says.
VolumeSpec ReadPlainSpec(const v1::VolumeSpec& spec) {
  VolumeSpec out;
  out.name = spec.name();
  out.size_bytes = spec.size_bytes();
  out.source_snapshot = SnapshotId(spec.source_snapshot());
  out.source_volume = VolumeId(spec.source_volume());
  out.fs_type = spec.fs_type();
  out.limits = FromMessage(spec.limits());
  out.claim = spec.claim();
  out.digests = lunkeeper::FromMessage(spec.digests());
  return out;
}

// An agent refuses a request with control characters, and no fence may fail for the text that explains it.
std::string PlainReason(std::string text) {
  size_t size = std::min(text.size(), kLongestReason);
  while (size < text.size() && size > 0 && (text[size] & 0xc0) == 0x80) --size;  // within a character
  text.resize(size);
  for (char& c : text)
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  return text;
}

}  // namespace

v1::VolumeSpec ToMessage(const VolumeSpec& spec) {
  v1::VolumeSpec out;
  out.set_name(spec.name);
  out.set_size_bytes(spec.size_bytes);
  out.set_provisioning(spec.provisioning == Provisioning::kThick ? v1::PROVISIONING_THICK
                                                                 : v1::PROVISIONING_THIN);
  out.set_durability(ToMessage(spec.durability));
  out.set_source_snapshot(spec.source_snapshot.value());
  out.set_source_volume(spec.source_volume.value());
  out.set_fs_type(spec.fs_type);
  out.set_claim(spec.claim);
  out.set_digests(ToMessage(spec.digests));
  *out.mutable_limits() = ToMessage(spec.limits);
  // Each use is a message of its own: bits would tie the protocol to the order of the enumerations.
  for (const Access access : {Access::kExclusive, Access::kReadOnly, Access::kSharedWrite}) {
    for (const VolumeMode mode : {VolumeMode::kFilesystem, VolumeMode::kBlock}) {
      VolumeUses use;
      use.Add(access, mode);
      if (spec.uses.empty() || !spec.uses.Contain(use)) continue;
      v1::VolumeUse* const message = out.add_uses();
      message->set_access(ToMessage(access));
      message->set_mode(ToMessage(mode));
    }
  }
  return out;
}

// An empty id is no source: ids are never empty.
absl::StatusOr<VolumeSpec> FromMessage(const v1::VolumeSpec& spec) {
  VolumeSpec out = ReadPlainSpec(spec);
  ASSIGN_OR_RETURN(out.provisioning, FromMessage(spec.provisioning()));
  ASSIGN_OR_RETURN(out.durability, FromMessage(spec.durability()));
  for (const v1::VolumeUse& use : spec.uses()) {
    ASSIGN_OR_RETURN(const Access access, FromMessage(use.access()));
    ASSIGN_OR_RETURN(const VolumeMode mode, FromMessage(use.mode()));
    out.uses.Add(access, mode);
  }
  return out;
}

v1::Volume ToMessage(const Volume& volume) {
  v1::Volume out;
  out.set_volume_id(volume.id.value());
  *out.mutable_spec() = ToMessage(volume.spec);
  out.set_serial(volume.serial);
  out.set_created_unix_nanos(absl::ToUnixNanos(volume.created));
  return out;
}

Volume FromMessage(const v1::Volume& volume) {
  Volume out;
  out.id = VolumeId(volume.volume_id());
  out.spec = ReadPlainSpec(volume.spec());
  out.spec.provisioning = FromMessage(volume.spec().provisioning()).value_or(Provisioning::kThin);
  out.spec.durability = FromMessage(volume.spec().durability()).value_or(Durability::kCached);
  out.spec.uses = ReadUses(volume.spec());
  out.serial = volume.serial();
  out.created = absl::FromUnixNanos(volume.created_unix_nanos());
  return out;
}

v1::Snapshot ToMessage(const Snapshot& snapshot) {
  v1::Snapshot out;
  out.set_snapshot_id(snapshot.id.value());
  out.set_name(snapshot.name);
  out.set_source_volume_id(snapshot.source.value());
  out.set_size_bytes(snapshot.size_bytes);
  out.set_created_unix_nanos(absl::ToUnixNanos(snapshot.created));
  out.set_ready(snapshot.ready);
  out.set_group_id(snapshot.group.value());
  return out;
}

Snapshot FromMessage(const v1::Snapshot& snapshot) {
  return Snapshot{.id = SnapshotId(snapshot.snapshot_id()),
                  .name = snapshot.name(),
                  .source = VolumeId(snapshot.source_volume_id()),
                  .size_bytes = snapshot.size_bytes(),
                  .created = absl::FromUnixNanos(snapshot.created_unix_nanos()),
                  .ready = snapshot.ready(),
                  .group = SnapshotGroupId(snapshot.group_id())};
}

v1::SnapshotGroup ToMessage(const SnapshotGroup& group) {
  v1::SnapshotGroup out;
  out.set_group_id(group.id.value());
  out.set_name(group.name);
  out.set_created_unix_nanos(absl::ToUnixNanos(group.created));
  for (const Snapshot& snapshot : group.snapshots) *out.add_snapshots() = ToMessage(snapshot);
  return out;
}

SnapshotGroup FromMessage(const v1::SnapshotGroup& group) {
  SnapshotGroup out{.id = SnapshotGroupId(group.group_id()),
                    .name = group.name(),
                    .created = absl::FromUnixNanos(group.created_unix_nanos()),
                    .snapshots = {}};
  for (const v1::Snapshot& snapshot : group.snapshots()) out.snapshots.push_back(FromMessage(snapshot));
  return out;
}

v1::CapacityResponse ToMessage(const PoolCapacity& capacity) {
  v1::CapacityResponse out;
  out.set_total_bytes(capacity.total_bytes);
  out.set_available_bytes(capacity.available_bytes);
  out.set_smallest_volume_bytes(capacity.smallest_volume_bytes);
  out.set_largest_volume_bytes(capacity.largest_volume_bytes);
  out.set_creatable_bytes(capacity.creatable_bytes);
  return out;
}

PoolCapacity FromMessage(const v1::CapacityResponse& capacity) {
  // An agent that does not say it has no limits: all that is available can become volumes.
  return {capacity.total_bytes(), capacity.available_bytes(), capacity.smallest_volume_bytes(),
          capacity.largest_volume_bytes(),
          capacity.has_creatable_bytes() ? capacity.creatable_bytes() : capacity.available_bytes()};
}

v1::Grant ToMessage(const Grant& grant) {
  v1::Grant out;
  out.set_volume_id(grant.volume.value());
  out.set_node_id(grant.node.value());
  out.set_access(ToMessage(grant.access));
  out.set_owner(ToMessage(grant.owner));
  out.set_generation(grant.generation);
  *out.mutable_connection() = ToMessage(grant.connection);
  out.set_serial(grant.serial);
  out.set_size_bytes(grant.size_bytes);
  out.set_durability(ToMessage(grant.durability));
  out.set_node_uid(grant.node_uid);
  *out.mutable_limits() = ToMessage(grant.limits);
  return out;
}

// The secrets are empty in what a reader receives (array_service.cc).
Grant FromMessage(const v1::Grant& grant) {
  Grant out;
  out.volume = VolumeId(grant.volume_id());
  out.node = NodeId(grant.node_id());
  out.access = FromMessage(grant.access()).value_or(Access::kExclusive);
  out.owner = FromMessage(grant.owner()).value_or(GrantOwner::kOrchestrator);
  out.generation = grant.generation();
  out.connection = FromMessage(grant.connection());
  out.serial = grant.serial();
  out.size_bytes = grant.size_bytes();
  out.durability = FromMessage(grant.durability()).value_or(Durability::kCached);
  out.node_uid = grant.node_uid();
  out.limits = FromMessage(grant.limits());
  return out;
}

v1::Fence ToMessage(const FenceRecord& fence) {
  v1::Fence out;
  out.set_node_id(fence.node.value());
  out.set_generation(fence.generation);
  out.set_term(fence.term);
  for (const VolumeId& volume : fence.volumes) out.add_volume_ids(volume.value());
  out.set_node_uid(fence.node_uid);
  out.set_fenced_by(fence.fenced_by);
  out.set_reason(fence.reason);
  out.set_fenced_unix_nanos(absl::ToUnixNanos(fence.fenced_at));
  out.set_of_machine(IsMachineId(fence.node));
  return out;
}

FenceRecord FromMessage(const v1::Fence& fence) {
  return FenceRecord{.node = NodeId(fence.node_id()),
                     .generation = fence.generation(),
                     .term = fence.term(),
                     .volumes = {fence.volume_ids().begin(), fence.volume_ids().end()},
                     .node_uid = fence.node_uid(),
                     .fenced_by = fence.fenced_by(),
                     .reason = fence.reason(),
                     .fenced_at = absl::FromUnixNanos(fence.fenced_unix_nanos())};
}

v1::FenceRequest ToMessage(Term term, const FenceRequest& request) {
  v1::FenceRequest out;
  out.set_term(term);
  out.set_node_id(request.node.value());
  for (const VolumeId& volume : request.volumes) out.add_volume_ids(volume.value());
  out.set_node_uid(request.node_uid);
  out.set_fenced_by(PlainReason(request.fenced_by));
  out.set_reason(PlainReason(request.reason));
  out.set_all_volumes(request.all_volumes);
  return out;
}

FenceRequest FromMessage(const v1::FenceRequest& request) {
  return {.node = NodeId(request.node_id()),
          .volumes = {request.volume_ids().begin(), request.volume_ids().end()},
          .node_uid = request.node_uid(),
          .fenced_by = request.fenced_by(),
          .reason = request.reason(),
          .all_volumes = request.all_volumes()};
}

v1::ModifyVolumeRequest ToMessage(const VolumeId& id, const VolumeChange& change) {
  v1::ModifyVolumeRequest out;
  out.set_volume_id(id.value());
  if (change.max_iops) out.set_max_iops(*change.max_iops);
  if (change.max_bandwidth) out.set_max_bandwidth(*change.max_bandwidth);
  if (change.durability) out.set_durability(ToMessage(*change.durability));
  if (change.digests) out.set_digests(ToMessage(*change.digests));
  return out;
}

absl::StatusOr<VolumeChange> FromMessage(const v1::ModifyVolumeRequest& request) {
  VolumeChange out;
  if (request.has_max_iops()) out.max_iops = request.max_iops();
  if (request.has_max_bandwidth()) out.max_bandwidth = request.max_bandwidth();
  if (request.has_digests()) out.digests = FromMessage(request.digests());
  if (!request.has_durability()) return out;
  ASSIGN_OR_RETURN(out.durability, FromMessage(request.durability()));
  return out;
}

v1::Session ToMessage(const GrantSession& session) {
  v1::Session out;
  out.set_volume_id(session.volume.value());
  out.set_node_id(session.node.value());
  out.set_reads(session.reads);
  out.set_writes(session.writes);
  out.set_read_bytes(session.read_bytes);
  out.set_written_bytes(session.written_bytes);
  return out;
}

GrantSession FromMessage(const v1::Session& session) {
  return GrantSession{.volume = VolumeId(session.volume_id()),
                      .node = NodeId(session.node_id()),
                      .reads = session.reads(),
                      .writes = session.writes(),
                      .read_bytes = session.read_bytes(),
                      .written_bytes = session.written_bytes()};
}

// An age and not a time: the clocks of the two machines need not agree.
v1::LandedHeartbeat ToMessage(const LandedHeartbeat& heartbeat) {
  v1::LandedHeartbeat out;
  out.set_node_id(heartbeat.node.value());
  out.set_sequence(heartbeat.sequence);
  out.set_age_millis(static_cast<uint64_t>(absl::ToInt64Milliseconds(heartbeat.age)));
  return out;
}

LandedHeartbeat FromMessage(const v1::LandedHeartbeat& heartbeat) {
  return LandedHeartbeat{.node = NodeId(heartbeat.node_id()),
                         .sequence = heartbeat.sequence(),
                         .age = absl::Milliseconds(heartbeat.age_millis())};
}

v1::ListBlocksResponse ToMessage(const BlockPage& page) {
  v1::ListBlocksResponse out;
  for (const BlockRange& range : page.ranges) {
    v1::BlockRange* const each = out.add_ranges();
    each->set_offset(range.offset);
    each->set_length(range.length);
  }
  out.set_size_bytes(page.size_bytes);
  out.set_next_offset(page.next_offset);
  return out;
}

BlockPage FromMessage(const v1::ListBlocksResponse& page) {
  BlockPage out{.ranges = {}, .size_bytes = page.size_bytes(), .next_offset = page.next_offset()};
  for (const v1::BlockRange& range : page.ranges()) out.ranges.push_back({range.offset(), range.length()});
  return out;
}

v1::Access ToMessage(Access access) {
  if (access == Access::kReadOnly) return v1::ACCESS_READ_ONLY;
  return access == Access::kSharedWrite ? v1::ACCESS_SHARED_WRITE : v1::ACCESS_EXCLUSIVE;
}

absl::StatusOr<Access> FromMessage(v1::Access access) {
  if (access == v1::ACCESS_EXCLUSIVE) return Access::kExclusive;
  if (access == v1::ACCESS_READ_ONLY) return Access::kReadOnly;
  if (access == v1::ACCESS_SHARED_WRITE) return Access::kSharedWrite;
  return Unknown("access", access);
}

v1::GrantOwner ToMessage(GrantOwner owner) {
  return owner == GrantOwner::kOrchestrator ? v1::GRANT_OWNER_ORCHESTRATOR : v1::GRANT_OWNER_NODE;
}

absl::StatusOr<GrantOwner> FromMessage(v1::GrantOwner owner) {
  if (owner == v1::GRANT_OWNER_NODE) return GrantOwner::kNode;
  if (owner == v1::GRANT_OWNER_ORCHESTRATOR) return GrantOwner::kOrchestrator;
  return Unknown("grant owner", owner);
}

// kAny is what a peer says that does not know modes.
v1::VolumeMode ToMessage(VolumeMode mode) {
  if (mode == VolumeMode::kFilesystem) return v1::VOLUME_MODE_FILESYSTEM;
  return mode == VolumeMode::kBlock ? v1::VOLUME_MODE_BLOCK : v1::VOLUME_MODE_UNSPECIFIED;
}

absl::StatusOr<VolumeMode> FromMessage(v1::VolumeMode mode) {
  if (mode == v1::VOLUME_MODE_UNSPECIFIED) return VolumeMode::kAny;
  if (mode == v1::VOLUME_MODE_FILESYSTEM) return VolumeMode::kFilesystem;
  if (mode == v1::VOLUME_MODE_BLOCK) return VolumeMode::kBlock;
  return Unknown("volume mode", mode);
}

}  // namespace lunkeeper::wire
