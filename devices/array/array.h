#pragma once
// The seam towards storage. The array is the authority: what keeps data safe is decided behind this interface, in one
// durable place, so that no mistake above it (a stale leader, a restored etcd, a retrying orchestrator) can give a volume
// to two writers.
//
// An Array is one cluster's view of one array: it neither shows nor touches what belongs to another cluster.
// Thread safety: every call may be made from any thread, at the same time as any other.
// Durability: what a call has returned survives a crash of the caller, of the array's program and of its machine. A call
// cut short is finished or undone before the array serves again; every call may be repeated and then succeeds.
// Failure: absl codes, meaning the same in every call unless its comment says more:
//   NOT_FOUND            no such volume, snapshot or node for this cluster
//   RESOURCE_EXHAUSTED   the pool is full
//   ABORTED              another call is working on the same object: try again
//   UNAVAILABLE          the array cannot be reached or is not serving yet: try again
//   FAILED_PRECONDITION  the state forbids it; the message says which state and what to do

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/types.h"

namespace lunkeeper {

enum class Provisioning { kThin, kThick };
// kSync makes every acknowledged write durable; kCached has a write cache, which flushes empty.
enum class Durability { kCached, kSync };

struct VolumeSpec {
  std::string name;  // unique within the cluster; the key of idempotency
  uint64_t size_bytes = 0;
  Provisioning provisioning = Provisioning::kThin;
  Durability durability = Durability::kCached;
  // At most one source; the volume is at least as large as it.
  SnapshotId source_snapshot;
  VolumeId source_volume;
  friend bool operator==(const VolumeSpec&, const VolumeSpec&) = default;
};

struct Volume {
  VolumeId id;
  VolumeSpec spec;     // size_bytes is the size now
  std::string serial;  // what the LUN answers to INQUIRY, page 80h
  absl::Time created;
};

struct Snapshot {
  SnapshotId id;
  std::string name;
  VolumeId source;
  uint64_t size_bytes = 0;
  absl::Time created;
  bool ready = false;  // false while it is being copied
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
};

// Volumes and snapshots.
class VolumeStore {
 public:
  virtual ~VolumeStore() = default;

  // Idempotent by spec.name. ALREADY_EXISTS: the name is taken by a volume of another spec.
  // OUT_OF_RANGE: a size the pool can never give, or smaller than the source.
  virtual absl::StatusOr<Volume> CreateVolume(const VolumeSpec& spec) = 0;
  // OK when it is gone already. FAILED_PRECONDITION: it is granted to a node. Snapshots and clones live on.
  virtual absl::Status DeleteVolume(const VolumeId& id) = 0;
  virtual absl::StatusOr<Volume> GetVolume(const VolumeId& id) = 0;
  // In order of id, at most `limit` (0: as many as the array likes) from `token`. ABORTED: the token is not ours.
  virtual absl::StatusOr<Page<Volume>> ListVolumes(const std::string& token, size_t limit) = 0;
  // Never shrinks: a smaller size is answered with the size there is. Sessions live on and see the new size.
  virtual absl::StatusOr<Volume> ExpandVolume(const VolumeId& id, uint64_t size_bytes) = 0;

  // As of one moment between the call and its return, as after a power cut. Idempotent by name.
  // ALREADY_EXISTS: the name is taken by a snapshot of another volume. FAILED_PRECONDITION: the pool cannot
  // reflink and the volume is in use.
  virtual absl::StatusOr<Snapshot> CreateSnapshot(const std::string& name, const VolumeId& source) = 0;
  virtual absl::Status DeleteSnapshot(const SnapshotId& id) = 0;
  virtual absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId& id) = 0;
  // Of one volume, or of all if `source` is empty.
  virtual absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId& source, const std::string& token,
                                                       size_t limit) = 0;

  virtual absl::StatusOr<PoolCapacity> Capacity() = 0;
};

// What a grant allows. Exclusive goes with nothing; readers go with readers and with shared writers.
enum class Access { kExclusive, kReadOnly, kSharedWrite };
// Who took a grant: a node for itself (NodeStage), or the orchestrator for it (ControllerPublish). Only the same side
// releases it, so that an unstage does not take away what was published.
enum class GrantOwner { kNode, kOrchestrator };

struct GrantRequest {
  VolumeId volume;
  NodeId node;
  Access access = Access::kExclusive;
  GrantOwner owner = GrantOwner::kNode;
};

struct Grant {
  VolumeId volume;
  NodeId node;
  Access access = Access::kExclusive;
  GrantOwner owner = GrantOwner::kNode;
  Generation generation = 0;
  Connection connection;
  std::string serial;
  uint64_t size_bytes = 0;
  Durability durability = Durability::kCached;
};

// Restricts a listing; an empty member restricts nothing.
struct GrantFilter {
  VolumeId volume;
  NodeId node;
};

struct FenceRecord {
  NodeId node;
  Generation generation = 0;
  Term term = 0;
  std::vector<VolumeId> volumes;
};

// One login as the array sees it.
struct Session {
  VolumeId volume;
  NodeId node;
  uint64_t reads = 0, writes = 0, read_bytes = 0, written_bytes = 0;  // since the grant was made
};

// Grants, fences, terms.
class AccessControl {
 public:
  virtual ~AccessControl() = default;

  // A grant is a lock. Waits until no other node's grant is in its way, then opens a target to this node alone, with
  // a secret of its own. The same node asking again gets the grant it has.
  // FAILED_PRECONDITION: `node` is fenced; or it has the volume with another access; or the volume is held and `wait` is
  // zero (the message names the holder). DEADLINE_EXCEEDED: held for all of `wait`.
  virtual absl::StatusOr<Grant> Acquire(const GrantRequest& request, absl::Duration wait) = 0;
  // Closes the target to logins, ends its sessions, waits for their commands to be over and deletes it; or fails, and the
  // grant is still there. OK when there is no such grant, or it is the other owner's.
  virtual absl::Status Release(const VolumeId& volume, const NodeId& node, GrantOwner owner) = 0;
  virtual absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) = 0;

  // A new term for `holder`, higher than any before it. From then on calls with an older one are refused.
  virtual absl::StatusOr<Term> BeginTerm(const std::string& holder) = 0;
  // Closes `node` to new grants and ends its grants of `volumes`, as Release does. Stored before it acts; returns
  // once every one is drained and deleted: from then on no write of the node reaches them. Repeating it adds volumes.
  // FAILED_PRECONDITION: a newer term exists. DEADLINE_EXCEEDED: commands would not end; the fence stays and is
  // carried on with, and the call is to be repeated.
  virtual absl::StatusOr<FenceRecord> Fence(Term term, const NodeId& node,
                                            const std::vector<VolumeId>& volumes) = 0;
  // Opens the node to new grants; restores none. FAILED_PRECONDITION: an older term, or the fence in force has
  // another generation. OK when there is none.
  virtual absl::Status Unfence(Term term, const NodeId& node, Generation generation) = 0;
  virtual absl::StatusOr<std::vector<FenceRecord>> ListFences() = 0;

  virtual absl::StatusOr<std::vector<Session>> Sessions() = 0;
};

class Array : public VolumeStore, public AccessControl {};

}  // namespace lunkeeper
