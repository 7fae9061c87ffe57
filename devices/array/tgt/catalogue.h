#pragma once
// The array's memory: volumes, snapshots, grants, fences and terms, in SQLite in the pool directory (WAL,
// full sync).
//
// Every change is one transaction and raises the sequence; once it returns OK it survives a power cut.
// Changes asked for at the same time share one sync. The rules that must never be broken are checked inside
// the transaction that would break them: one exclusive grant, no grant to a fenced node, no deletion of a
// granted volume, no older term; so they hold whatever the callers' locks do. Generations and ids are never
// used again. Thread-safe. Failure: RESOURCE_EXHAUSTED the disk is full; INTERNAL SQLite's own errors; others
// where they are named.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/array.h"
#include "devices/array/tgt/sqlite.h"

namespace lunkeeper {

struct VolumeRow {
  ClusterId cluster;
  Volume volume;
  uint64_t asked_size_bytes = 0;  // when it was made, rounded: part of the key of idempotency
  bool copying = false;           // its source is still being copied
};
struct SnapshotRow {
  ClusterId cluster;
  Snapshot snapshot;  // ready: not copying
};
struct GrantRow {
  ClusterId cluster;
  VolumeId volume;
  NodeId node;
  Access access = Access::kExclusive;
  GrantOwner owner = GrantOwner::kNode;
  Generation generation = 0;
  std::string secret;
  bool releasing = false;  // being drained; never opened again
};

class Catalogue {
 public:
  // Opens or makes the file. FAILED_PRECONDITION: it belongs to an array of another name, or to a newer
  // program.
  static absl::StatusOr<std::unique_ptr<Catalogue>> Open(const std::string& path, const std::string& array);

  // How many changes there have been.
  uint64_t sequence() const { return sequence_; }
  // For a catalogue that is older than what it once was: goes on from `sequence`, leaving out every
  // generation and term that could have been given before it, and marks every grant as releasing: who holds
  // what by the copy may have lost it since, to a node that wrote.
  absl::Status SkipTo(uint64_t sequence);

  // ALREADY_EXISTS: the cluster has a volume of this name.
  // FAILED_PRECONDITION: it is copying from a volume that is granted.
  absl::Status InsertVolume(const VolumeRow& row);
  absl::StatusOr<VolumeRow> FindVolume(const ClusterId& cluster, const VolumeId& id);
  absl::StatusOr<std::optional<VolumeRow>> FindVolumeNamed(const ClusterId& cluster, const std::string& name);
  absl::StatusOr<std::vector<VolumeRow>> ListVolumes(const ClusterId& cluster, const std::string& after,
                                                     size_t limit);
  absl::StatusOr<std::vector<VolumeRow>> AllVolumes();
  absl::Status SetVolumeSize(const VolumeId& id, uint64_t size_bytes);
  absl::Status SetVolumeReady(const VolumeId& id);
  // FAILED_PRECONDITION: it is granted; the message names the nodes. ABORTED: it is being copied from.
  absl::Status DeleteVolume(const VolumeId& id);

  absl::Status InsertSnapshot(const SnapshotRow& row);
  absl::StatusOr<SnapshotRow> FindSnapshot(const ClusterId& cluster, const SnapshotId& id);
  absl::StatusOr<std::optional<SnapshotRow>> FindSnapshotNamed(const ClusterId& cluster,
                                                               const std::string& name);
  absl::StatusOr<std::vector<SnapshotRow>> ListSnapshots(const ClusterId& cluster, const VolumeId& source,
                                                         const std::string& after, size_t limit);
  absl::StatusOr<std::vector<SnapshotRow>> AllSnapshots();
  absl::Status SetSnapshotReady(const SnapshotId& id);
  absl::Status DeleteSnapshot(const SnapshotId& id);

  // The grant the node has, or a new one. ABORTED: somebody else's is in the way (the message names the
  // holder); FAILED_PRECONDITION: the node is fenced, or has the volume with another access.
  absl::StatusOr<GrantRow> AddGrant(const ClusterId& cluster, const GrantRequest& request,
                                    const std::string& secret);
  absl::StatusOr<std::optional<GrantRow>> FindGrant(const VolumeId& volume, const NodeId& node);
  absl::StatusOr<std::optional<GrantRow>> FindGeneration(Generation generation);
  absl::StatusOr<std::vector<GrantRow>> ListGrants(const ClusterId& cluster, const GrantFilter& filter);
  absl::StatusOr<std::vector<GrantRow>> AllGrants();
  absl::StatusOr<std::vector<GrantRow>> GrantsBeingReleased();
  // From here on the grant is never opened again.
  absl::Status SetReleasing(Generation generation);
  absl::Status DeleteGrants(const std::vector<Generation>& generations);

  // A heartbeat LUN is kept as a grant of a volume that is called `heartbeat` and is in no table. The node's,
  // or a new one; RESOURCE_EXHAUSTED: its machine has too many.
  absl::StatusOr<GrantRow> AddHeartbeatLun(const ClusterId& cluster, const NodeId& node,
                                           const std::string& secret);
  absl::StatusOr<std::vector<GrantRow>> AllHeartbeatLuns();
  absl::Status DeleteHeartbeatLun(Generation generation);

  absl::StatusOr<Term> BeginTerm(const ClusterId& cluster, const std::string& holder);
  // Records the fence and marks the node's grants of all its fenced volumes as being released, in one change.
  absl::StatusOr<FenceRecord> Fence(const ClusterId& cluster, Term term, const NodeId& node,
                                    const std::vector<VolumeId>& volumes);
  absl::Status Unfence(const ClusterId& cluster, Term term, const NodeId& node, Generation generation);
  absl::StatusOr<std::vector<FenceRecord>> ListFences(const ClusterId& cluster);
  absl::StatusOr<std::map<ClusterId, std::vector<FenceRecord>>> AllFences();
  // FAILED_PRECONDITION: it is fenced.
  absl::Status CheckNotFenced(const ClusterId& cluster, const NodeId& node);

 private:
  using Change = std::function<absl::Status(SqlDatabase&)>;
  struct Pending {
    const Change* change;
    absl::Status status;
    bool done = false;
  };

  Catalogue() = default;
  absl::Status Prepare(const std::string& array);
  // Runs `change` in a transaction of its own or together with others, and returns when it is on the disk.
  absl::Status Write(const Change& change) ABSL_LOCKS_EXCLUDED(queue_mu_);
  absl::Status Commit(const std::deque<Pending*>& batch);
  absl::Status CommitBatch(const std::deque<Pending*>& batch);
  absl::Status Read(const char* sql, SqlValues values, const std::function<void(const SqlRow&)>& each)
      ABSL_LOCKS_EXCLUDED(read_mu_);
  absl::StatusOr<std::vector<VolumeRow>> ReadVolumes(const char* sql, SqlValues values);
  absl::StatusOr<std::vector<SnapshotRow>> ReadSnapshots(const char* sql, SqlValues values);
  absl::StatusOr<std::vector<GrantRow>> ReadGrants(const char* sql, SqlValues values);

  std::unique_ptr<SqlDatabase> writer_;  // used by the leader of a batch alone
  absl::Mutex queue_mu_;
  std::deque<Pending*> queue_ ABSL_GUARDED_BY(queue_mu_);
  bool leader_ ABSL_GUARDED_BY(queue_mu_) = false;
  std::atomic<uint64_t> sequence_{0};
  absl::Mutex read_mu_;
  std::unique_ptr<SqlDatabase> reader_ ABSL_GUARDED_BY(read_mu_);
};

}  // namespace lunkeeper
