#pragma once
// Volumes, snapshots and the space for them. See devices/array/array.h for threads, durability and failure.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/volume_uses.h"
#include "devices/grant.h"
#include "devices/types.h"
#include "devices/volume_limits.h"

namespace lunkeeper {

enum class Provisioning { kThin, kThick };

struct VolumeSpec {
  std::string name;  // unique within the cluster; the key of idempotency
  uint64_t size_bytes = 0;
  Provisioning provisioning = Provisioning::kThin;
  Durability durability = Durability::kCached;
  // At most one source; the volume is at least as large as it.
  SnapshotId source_snapshot;
  VolumeId source_volume;
  VolumeUses uses = {};      // what it is made for; empty: what it is first used for
  std::string fs_type = {};  // the file system it is made for; empty: any
  VolumeLimits limits = {};
  // Whose it is, for people: "namespace/name" of the claim it was first made for; empty: not known. Nothing
  // is decided by it, since a volume may get another claim.
  std::string claim = {};
  Digests digests = Digests::kNone;  // what sessions of it have to have
  friend bool operator==(const VolumeSpec&, const VolumeSpec&) = default;
};

// What can change while the volume lives; empty members stay as they are.
struct VolumeChange {
  std::optional<uint64_t> max_iops = {};       // VolumeLimits
  std::optional<uint64_t> max_bandwidth = {};  // bytes a second
  std::optional<Durability> durability = {};
  std::optional<Digests> digests = {};
};

// What `change` makes of a volume; equal to `spec` if it is so already.
inline VolumeSpec WithChange(VolumeSpec spec, const VolumeChange& change) {
  VolumeLimits limits = spec.limits;
  limits.iops = change.max_iops.value_or(limits.iops);
  limits.bytes_per_second = change.max_bandwidth.value_or(limits.bytes_per_second);
  if (limits != spec.limits) ++limits.version;
  spec.limits = limits;
  spec.durability = change.durability.value_or(spec.durability);
  spec.digests = change.digests.value_or(spec.digests);
  return spec;
}

// Whether the change has to wait until no node has the volume: a node learns of these at its login.
inline bool NeedsNoGrant(const VolumeSpec& before, const VolumeSpec& after) {
  return before.durability != after.durability || before.digests != after.digests;
}

// Whether a repeated call for `asked` means the volume that is `there`. All must agree but the size, the
// limits and the claim. It may be more durable, or have more digests, than asked for, since it may have been
// modified. What it was made for may be more than is asked for now, or not be known.
inline bool IsMadeAs(const VolumeSpec& there, VolumeSpec asked) {
  const bool fits = asked.fs_type.empty() || there.fs_type.empty() || asked.fs_type == there.fs_type;
  if (!fits || !there.uses.Contain(asked.uses)) return false;
  asked.size_bytes = there.size_bytes;
  asked.uses = there.uses;
  asked.fs_type = there.fs_type;
  asked.limits = there.limits;
  asked.claim = there.claim;
  if (there.durability == Durability::kSync) asked.durability = Durability::kSync;
  asked.digests = std::max(asked.digests, there.digests);
  return asked == there;
}

struct Volume {
  VolumeId id;
  VolumeSpec spec;     // size_bytes is the size now
  std::string serial;  // what the LUN answers to INQUIRY, page 80h
  absl::Time created;
};

// Given by the array, never used again; also the CSI group_snapshot_id.
using SnapshotGroupId = Name<struct SnapshotGroupTag>;

struct Snapshot {
  SnapshotId id;
  std::string name;
  VolumeId source;
  uint64_t size_bytes = 0;
  absl::Time created;
  bool ready = false;          // false while it is being copied
  SnapshotGroupId group = {};  // that it was made with, and goes with; empty: none
};

template <class T>
struct Page {
  std::vector<T> items;
  std::string next_token;  // empty at the end
};

struct PoolCapacity {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  // for new volumes, what thick ones have reserved left out
  uint64_t smallest_volume_bytes = 0;
  uint64_t largest_volume_bytes = 0;
  uint64_t creatable_bytes = 0;  // of the available ones, what the pool's limits leave to new volumes
};

class VolumeStore {
 public:
  virtual ~VolumeStore() = default;

  // Idempotent by spec.name. ALREADY_EXISTS: the name is taken by a volume that is made otherwise
  // (IsMadeAs).
  // OUT_OF_RANGE: a size the pool can never give, or smaller than the source.
  virtual absl::StatusOr<Volume> CreateVolume(const VolumeSpec& spec) = 0;
  // OK when it is gone already. FAILED_PRECONDITION: it is granted to a node. Snapshots and clones live on.
  virtual absl::Status DeleteVolume(const VolumeId& id) = 0;
  virtual absl::StatusOr<Volume> GetVolume(const VolumeId& id) = 0;
  // In order of id, at most `limit` (0: as many as the array likes) from `token`. ABORTED: the token is not
  // ours.
  virtual absl::StatusOr<Page<Volume>> ListVolumes(const std::string& token, size_t limit) = 0;
  // Never shrinks: a smaller size is answered with the size there is. The grant lives on,
  // and the LUN has the new size; a session may be cut once, and is let in again at once.
  virtual absl::StatusOr<Volume> ExpandVolume(const VolumeId& id, uint64_t size_bytes) = 0;
  // All of the change, or nothing. FAILED_PRECONDITION: another durability or digests, while a node has
  // the volume: its login went by what there was. UNIMPLEMENTED: the array's agent is too old for a part of
  // it, and has done the rest.
  virtual absl::StatusOr<Volume> ModifyVolume(const VolumeId& id, const VolumeChange& change) = 0;

  // A crash-consistent copy: all blocks are of one moment between the call and its return. Idempotent by
  // name. ALREADY_EXISTS: the name is taken by a snapshot of another volume. FAILED_PRECONDITION: the pool
  // cannot reflink and the volume is in use.
  virtual absl::StatusOr<Snapshot> CreateSnapshot(const std::string& name, const VolumeId& source) = 0;
  // OK when it is gone already. INVALID_ARGUMENT: it is a group's, and goes with that.
  virtual absl::Status DeleteSnapshot(const SnapshotId& id) = 0;
  virtual absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId& id) = 0;
  // Of one volume, or of all if `source` is empty.
  virtual absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId& source, const std::string& token,
                                                       size_t limit) = 0;

  virtual absl::StatusOr<PoolCapacity> GetCapacity() = 0;
};

}  // namespace lunkeeper
