#pragma once
// The inside of TgtArrayHost: what the views of all clusters share, and the work on grants that outlives a
// call: putting targets back, finishing what is being released.
//
// Thread-safe. Order of holding: a claim, then a gate, then the catalogue; nobody waits for tgtd while inside
// a gate.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/copies.h"
#include "devices/array/tgt/heartbeat_lun_table.h"
#include "devices/array/tgt/pool.h"
#include "devices/array/tgt/targets.h"
#include "devices/array/tgt/tgt_array.h"
#include "devices/array/tgt/tgt_daemon.h"
#include "devices/array/tgt/volume_gates.h"

namespace lunkeeper {

class TgtHost final : public TgtArrayHost {
 public:
  static absl::StatusOr<std::unique_ptr<TgtHost>> Open(const TgtArrayOptions& options);
  ~TgtHost() override;

  std::unique_ptr<Array> ForCluster(const ClusterId& cluster) override;
  uint64_t Sequence() const override { return catalogue->sequence(); }
  absl::Status Serving() const override;
  absl::Status AcceptRestore() override;
  absl::Status StopTgtd() override { return daemon->Stop(); }

  // An object one call works on at a time. Held until it dies; false when another call has it.
  class Claim {
   public:
    Claim(TgtHost* host, std::string name);
    ~Claim();
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    // OK, or ABORTED.
    absl::Status status() const;

   private:
    TgtHost* const host_;
    const std::string name_;
    bool held_ = false;
  };

  // Drains and deletes these grants, which are being released. DEADLINE_EXCEEDED: commands would not end;
  // they go on being released behind.
  absl::Status FinishReleasing(std::vector<GrantRow> grants, absl::Time deadline);
  // Makes the target of a grant, unless it is being released. The caller is inside the gate.
  absl::Status OpenTarget(const GrantRow& grant);
  // Makes a target's LUN as large as its file. The caller is inside the gate.
  absl::Status GrowLun(const GrantRow& grant, const std::string& path);
  // The copy of a volume or snapshot whose row says so.
  void BeginCopy(const VolumeRow& row, const std::string& from);
  void BeginCopy(const SnapshotRow& row);
  // After a change: remembers the sequence outside the pool.
  void Remember();

  const TgtArrayOptions options;
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Catalogue> catalogue;
  VolumeGates gates;
  std::unique_ptr<TargetTable> targets;
  std::unique_ptr<TgtDaemon> daemon;
  std::unique_ptr<HeartbeatLunTable> heartbeat_luns;
  std::unique_ptr<Copies> copies;

 private:
  explicit TgtHost(TgtArrayOptions given) : options(std::move(given)) {}
  absl::Status Prepare();
  absl::Status ReadSeenSequence(uint64_t* sequence);
  absl::Status Serve(bool set_orphans_aside);
  absl::Status TidyFiles(bool set_orphans_aside);
  absl::Status ResumeCopies();
  absl::Status PutBack(bool taken_over);
  absl::Status PutBackOne(const GrantRow& grant);
  // True when it is gone.
  absl::StatusOr<bool> ReleaseStep(const GrantRow& grant);
  // Of each; there is one at least.
  std::vector<absl::StatusOr<bool>> ReleaseSteps(const std::vector<GrantRow>& grants);
  absl::Status ForgetGrants(const std::vector<GrantRow>& grants);
  void Tick();

  std::atomic<bool> serving_{false};
  absl::Mutex restore_mu_;  // AcceptRestore runs once at a time
  UniqueFd seen_file_;
  uint64_t seen_sequence_at_open_ = 0;
  absl::Mutex seen_mu_;
  uint64_t remembered_ ABSL_GUARDED_BY(seen_mu_) = 0;
  absl::Mutex claims_mu_;
  absl::flat_hash_set<std::string> claims_ ABSL_GUARDED_BY(claims_mu_);
};

// One cluster's view.
class TgtArray final : public Array, public VolumeStore, public GrantStore, public FenceControl {
 public:
  TgtArray(TgtHost* host, ClusterId cluster) : host_(*host), cluster_(std::move(cluster)) {}

  VolumeStore& volumes() override { return *this; }
  GrantStore& grants() override { return *this; }
  FenceControl& fences() override { return *this; }

  absl::StatusOr<Volume> CreateVolume(const VolumeSpec& spec) override;
  absl::Status DeleteVolume(const VolumeId& id) override;
  absl::StatusOr<Volume> GetVolume(const VolumeId& id) override;
  absl::StatusOr<Page<Volume>> ListVolumes(const std::string& token, size_t limit) override;
  absl::StatusOr<Volume> ExpandVolume(const VolumeId& id, uint64_t size_bytes) override;
  absl::StatusOr<Snapshot> CreateSnapshot(const std::string& name, const VolumeId& source) override;
  absl::Status DeleteSnapshot(const SnapshotId& id) override;
  absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId& id) override;
  absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId& source, const std::string& token,
                                               size_t limit) override;
  absl::StatusOr<PoolCapacity> GetCapacity() override;

  absl::StatusOr<Grant> AcquireGrant(const GrantRequest& request, absl::Duration wait) override;
  absl::Status ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                            Generation generation) override;
  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) override;
  absl::StatusOr<Term> BeginTerm(const std::string& holder) override;
  absl::StatusOr<FenceRecord> FenceNode(Term term, const NodeId& node,
                                        const std::vector<VolumeId>& volumes) override;
  absl::Status UnfenceNode(Term term, const NodeId& node, Generation generation) override;
  absl::StatusOr<std::vector<FenceRecord>> ListFences() override;
  absl::StatusOr<std::vector<GrantSession>> ListSessions() override;
  absl::StatusOr<std::vector<VolumeId>> ListWantedVolumes() override;

  absl::StatusOr<Connection> OpenHeartbeatLun(const NodeId& node) override;
  absl::StatusOr<std::vector<LandedHeartbeat>> ListHeartbeats() override;

 private:
  absl::StatusOr<VolumeRow> MakeVolume(const VolumeSpec& spec, uint64_t asked_size_bytes);
  absl::Status FillVolume(const VolumeRow& row, const std::string& from);
  absl::StatusOr<std::string> SourceOf(const VolumeSpec& spec);
  absl::StatusOr<Snapshot> MakeSnapshot(const std::string& name, const VolumeRow& source);
  // The grant, if it can be had now, with its target open. The caller is inside the gate.
  absl::StatusOr<Grant> TryAcquire(const GrantRequest& request);
  absl::StatusOr<Grant> AcquireInLine(const GrantRequest& request, absl::Duration wait);
  absl::StatusOr<Grant> Describe(const GrantRow& row);

  TgtHost& host_;
  const ClusterId cluster_;
};

}  // namespace lunkeeper
