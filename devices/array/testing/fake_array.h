#pragma once
// An Array in memory, for tests and for `lunkeeper-fake`: the same answers, waits and refusals as a real one,
// and no target behind them. Nothing survives the object; a grant's connection leads nowhere.
//
// Thread-safe. The creator owns it and destroys it after the last call has returned. Failure means what
// array.h says; tests add failures of their own with the two switches below.

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/array.h"
#include "devices/array/testing/fake_fences.h"
#include "devices/array/testing/fake_heartbeats.h"
#include "devices/array/testing/fake_snapshots.h"

namespace lunkeeper {

struct FakeArrayOptions {
  std::string name = "fake";  // part of every id
  uint64_t pool_bytes = uint64_t{64} << 40;
  uint64_t largest_volume_bytes = uint64_t{16} << 40;
};

class FakeArray final : public Array,
                        public VolumeStore,
                        public SnapshotGroups,
                        public SnapshotBlocks,
                        public GrantStore,
                        public FenceControl,
                        public NameIndex {
 public:
  explicit FakeArray(FakeArrayOptions options = {});

  // Every call answers with `status` until this is called with OK again. Waiting calls end too.
  void FailWith(const absl::Status& status);
  // While true, commands of ended sessions never end: Release and Fence answer DEADLINE_EXCEEDED, and the
  // grant stays.
  void HoldDrains(bool hold);
  // Nobody can say whether the volume's grants are used, and no fence of them ends, as when one of several
  // tgtds does not answer.
  void HideSessions(const VolumeId& volume, bool hide);
  // How many calls to Acquire wait now.
  size_t Waiting();
  // A heartbeat of the node lands on its heartbeat LUN, which nobody can log in to here.
  void LandHeartbeat(const NodeId& node);

  // A node writes to a block of a volume, or discards it (FakeSnapshots).
  void WriteBlock(const VolumeId& volume, uint64_t offset, bool discard = false) {
    absl::MutexLock lock(&mutex_);
    discard ? snapshots_.Discard(volume, offset) : snapshots_.Write(volume, offset);
  }

  // While true, snapshots that are made are not ready.
  void HoldCopies(bool hold) {
    absl::MutexLock lock(&mutex_);
    snapshots_.HoldCopies(hold);
  }

  VolumeStore& volumes() override { return *this; }
  SnapshotGroups& groups() override { return *this; }
  SnapshotBlocks& blocks() override { return *this; }
  GrantStore& grants() override { return *this; }
  FenceControl& fences() override { return *this; }
  NameIndex& names() override { return *this; }

  absl::StatusOr<Volume> CreateVolume(const VolumeSpec& spec) override;
  absl::Status DeleteVolume(const VolumeId& id) override;
  absl::StatusOr<Volume> GetVolume(const VolumeId& id) override;
  absl::StatusOr<Page<Volume>> ListVolumes(const std::string& token, size_t limit) override;
  absl::StatusOr<Volume> ExpandVolume(const VolumeId& id, uint64_t size_bytes) override;
  absl::StatusOr<Volume> ModifyVolume(const VolumeId& id, const VolumeChange& change) override;
  absl::StatusOr<Snapshot> CreateSnapshot(const std::string& name, const VolumeId& source) override;
  absl::Status DeleteSnapshot(const SnapshotId& id) override;
  absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId& id) override;
  absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId& source, const std::string& token,
                                               size_t limit) override;
  absl::StatusOr<PoolCapacity> GetCapacity() override;

  absl::StatusOr<SnapshotGroup> CreateGroup(const std::string& name,
                                            const std::vector<VolumeId>& sources) override;
  absl::Status DeleteGroup(const SnapshotGroupId& id) override;
  absl::StatusOr<SnapshotGroup> GetGroup(const SnapshotGroupId& id) override;

  absl::StatusOr<BlockPage> ListBlocks(const BlockQuery& query) override;
  absl::StatusOr<std::string> FindNamed(NamedKind kind, const std::string& name) override;

  absl::StatusOr<Grant> AcquireGrant(const GrantRequest& request, absl::Duration wait) override;
  absl::Status ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                            Generation generation) override;
  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) override;
  absl::StatusOr<std::string> GrantsVersion() override;
  absl::StatusOr<Term> BeginTerm(const std::string& holder) override;
  absl::StatusOr<FenceRecord> FenceNode(Term term, const FenceRequest& request) override;
  absl::Status UnfenceNode(Term term, const NodeId& node, Generation generation) override;
  absl::StatusOr<std::vector<FenceRecord>> ListFences() override;
  absl::StatusOr<std::vector<GrantSession>> ListSessions() override;
  absl::StatusOr<SeenSessions> ListSeenSessions() override;
  absl::StatusOr<std::vector<VolumeId>> ListWantedVolumes() override;

  absl::StatusOr<Connection> OpenHeartbeatLun(const HeartbeatLunRequest& request) override;
  absl::StatusOr<std::vector<LandedHeartbeat>> ListHeartbeats() override;

 private:
  struct Waiter {
    const GrantRequest& request;
  };
  struct VolumeEntry {
    Volume volume;
    uint64_t asked_bytes = 0;  // when it was made
    std::map<NodeId, Grant> grants;
    std::list<Waiter> waiters;  // first come, first served
  };

  absl::StatusOr<VolumeEntry*> Find(const VolumeId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<uint64_t> SizeFor(const VolumeSpec& spec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t ThickBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t VolumesOf(const NodeId& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The grant, a refusal, or UNAVAILABLE with the holder's name: not yet.
  absl::StatusOr<Grant> TryAcquire(const GrantRequest& request, const Waiter* self)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Grant> AcquireByTurn(const GrantRequest& request, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Grant MakeGrant(const GrantRequest& request, VolumeEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string NextId(const std::string& prefix) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FakeArrayOptions options_;
  const std::string volume_prefix_ = options_.name + "-v";

  absl::Mutex mutex_;
  absl::CondVar changed_;  // a grant ended, a fence began, a switch was turned
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool hold_drains_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<VolumeId> hidden_ ABSL_GUARDED_BY(mutex_);
  uint64_t ids_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t modified_ ABSL_GUARDED_BY(mutex_) = 0;
  Generation generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<VolumeId, VolumeEntry> volumes_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, VolumeId> volume_names_ ABSL_GUARDED_BY(mutex_);
  FakeSnapshots snapshots_ ABSL_GUARDED_BY(mutex_){options_.name};
  FakeFences fences_ ABSL_GUARDED_BY(mutex_);
  FakeHeartbeats heartbeats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
