// The composition root of the tgt array, and its start.
//
// The order of a start matters. The pool is locked and the catalogue opened; a catalogue that is older than
// what was seen (a restored backup) stops here, until an operator accepts it. Then: what a crash cut short is
// finished or undone, files that no row knows are set aside, unfinished copies begun again, the heartbeat
// LUNs' rows read, and only then are the tgtds taken over or started. TgtDaemon calls RestoreTargets, and
// opens the portal after it: an initiator that receives "target not found" gives up for good, while one that
// is refused a connection tries again. Images on Ceph are tidied after that, since nodes wait for the portal,
// and before calls are answered.
//
// Threads: callers' threads, each tgtd's watcher and its tick of once a second (TgtDaemon), the heartbeat
// LUNs' thread, and one for copies. The destructor ends the threads and leaves tgtd serving.
#include "devices/array/tgt/tgt_array.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/tgt/backup_manifest.h"
#include "devices/array/tgt/backup_verify.h"
#include "devices/array/tgt/file_store.h"
#include "devices/array/tgt/gateway_lease.h"
#include "devices/array/tgt/opened_store.h"
#include "devices/array/tgt/rbd_array_store.h"
#include "devices/array/tgt/tgt_blocks.h"
#include "devices/array/tgt/tgt_fences.h"
#include "devices/array/tgt/tgt_grants.h"
#include "devices/array/tgt/tgt_groups.h"
#include "devices/array/tgt/tgt_names.h"
#include "devices/array/tgt/tgt_parts.h"
#include "devices/array/tgt/tgt_volumes.h"
#include "devices/array/tgt/thick_space.h"

namespace lunkeeper {
namespace {

// The name is part of ids, of file names, of target names (iqn), and of tgtd's comma-separated parameters.
absl::Status CheckName(const std::string& name) {
  const bool fine = !name.empty() && name.size() <= 32 &&
                    name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
  if (fine) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("open array '", name, "': a name has 1 to 32 of a-z, 0-9 and -"));
}

class ClusterView final : public Array {
 public:
  ClusterView(const TgtParts& parts, const ClusterId& cluster)
      : volumes_(parts, cluster),
        groups_(parts, cluster),
        blocks_(parts, cluster),
        grants_(parts, cluster),
        fences_(parts, cluster),
        names_(parts, cluster) {}
  VolumeStore& volumes() override { return volumes_; }
  SnapshotGroups& groups() override { return groups_; }
  SnapshotBlocks& blocks() override { return blocks_; }
  GrantStore& grants() override { return grants_; }
  FenceControl& fences() override { return fences_; }
  NameIndex& names() override { return names_; }

 private:
  TgtVolumes volumes_;
  TgtGroups groups_;
  TgtBlocks blocks_;
  TgtGrants grants_;
  TgtFences fences_;
  TgtNames names_;
};

class TgtArrayImpl final : public TgtArray {
 public:
  explicit TgtArrayImpl(TgtArrayOptions options) : options_(std::move(options)) {}
  ~TgtArrayImpl() override;

  // Opens what there is, and serves unless the pool was restored from an older copy.
  absl::Status OpenPool();
  // After an error of that. Here, since the destructor waits for images that do not answer.
  void LeaveToOthers() const {
    if (store_.lease != nullptr)
      store_.lease->ReleaseIfUnserved([this] { return EndUnserved(servers_.get(), options_.pool_dir); });
  }

  std::unique_ptr<Array> ForCluster(const ClusterId& cluster) override {
    return std::make_unique<ClusterView>(*parts_, cluster);
  }
  uint64_t sequence() const override { return store_.catalogue->sequence(); }
  absl::Status CheckServing() const override;
  absl::Status ConfirmServing() const override {
    return serving_ ? store_.images->ConfirmHeld() : CheckServing();
  }
  absl::Status AcceptRestore() override;
  std::optional<PoolIdentity> identity() const override {
    return serving_ ? std::optional(store_.catalogue->identity()) : std::nullopt;
  }
  void NoteCopy(const PoolIdentity& known) override {
    if (!serving_) store_.catalogue->NoteCopy(known);
  }
  absl::StatusOr<PoolUse> MeasureUse() const override { return room_->MeasureUse(); }
  absl::StatusOr<std::vector<OrphanFile>> ListOrphans() const override {
    return store_.images->ListOrphans();
  }
  absl::Status DeleteOrphan(const std::string& name) override { return store_.images->DeleteOrphan(name); }
  absl::Status BackUp(const std::string& folder, const BackupWatch& watch) override;
  absl::Status HandOver(const HandoverWatch& watch) override;
  absl::StatusOr<Reassigned> Reassign(const Reassignment& asked) override {
    return ReassignCluster(*parts_, asked);
  }
  absl::Status CheckTgtd() const override;
  std::vector<absl::Status> CheckEachTgtd() const override { return servers_->CheckEach(); }
  absl::StatusOr<GrantUse> MeasureGrants() const override;
  std::optional<GatewayState> FindGateway() const override {
    return store_.lease != nullptr ? store_.lease->times().FindState() : std::nullopt;
  }
  absl::StatusOr<std::set<std::string>> ListStandbys(const std::function<bool()>& abandoned) const override {
    return store_.lease != nullptr ? store_.lease->ListStandbys(abandoned) : std::set<std::string>();
  }

 private:
  absl::Status CheckCall() const {
    const absl::Status status = CheckServing();
    return status.ok() && options_.ceph.confirms_calls ? ConfirmServing() : status;
  }
  absl::Status ReadWhetherRestored();
  absl::Status OpenStore();
  absl::Status MakeParts();
  absl::Status BeginServing();
  absl::Status TakeBackup();
  absl::Status TidyImages();
  absl::StatusOr<std::set<std::string>> ListGranted() const;

  const TgtArrayOptions options_;
  KeyedLock object_locks_;
  VolumeGates gates_;
  MachineShares shares_{options_.shares};
  OpenedStore store_;
  std::unique_ptr<PoolRoom> room_;
  std::unique_ptr<SeenSequence> seen_;
  std::unique_ptr<VolumeCopies> copies_;
  std::unique_ptr<TgtServers> servers_;
  std::unique_ptr<WriteBarrier> barrier_;
  std::unique_ptr<HeartbeatLunTable> heartbeat_luns_;
  std::optional<TgtParts> parts_;
  std::atomic<bool> serving_{false};
  std::atomic<bool> is_backup_{false};  // the pool, and that was not accepted yet
  bool tidied_ = false;                 // its images; one thread serves at a time
  std::atomic<bool> leaving_{false};    // another gateway is to have the array
  absl::Mutex handover_mu_;             // HandOver runs once at a time
  absl::Mutex restore_mu_;              // AcceptRestore runs once at a time
  absl::Mutex backup_mu_;               // and so does BackUp
};

// The threads stop first, and each of them before the parts that it uses.
TgtArrayImpl::~TgtArrayImpl() {
  if (heartbeat_luns_) heartbeat_luns_->StopLooking();
  servers_.reset();
  copies_.reset();
}

absl::Status TgtArrayImpl::OpenPool() {
  RETURN_IF_ERROR(CheckName(options_.name));
  RETURN_IF_ERROR(ReadWhetherRestored());
  RETURN_IF_ERROR(OpenStore());
  RETURN_IF_ERROR(MakeParts());
  if (is_backup_ || sequence() < seen_->at_open()) {
    LogError("array", std::string(CheckServing().message()));
    // Given away, it would be served without that word: another host's agent remembers less.
    if (store_.lease != nullptr) store_.lease->NoteStarted();
    return absl::OkStatus();
  }
  return BeginServing();
}

// A backup that is served says so itself, for the number of changes may be lost with the host.
absl::Status TgtArrayImpl::ReadWhetherRestored() {
  const auto backup = ReadBackupManifest(options_.pool_dir);
  if (absl::IsNotFound(backup.status())) return absl::OkStatus();
  RETURN_IF_ERROR(backup.status());
  is_backup_ = true;
  if (backup->whole) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "open pool ", options_.pool_dir, ": it is a backup that broke off; restore one that is whole"));
}

absl::Status TgtArrayImpl::OpenStore() {
  ASSIGN_OR_RETURN(seen_, SeenSequence::Open(options_.seen_sequence_path));
  const auto open = options_.ceph.pool.empty() ? OpenFileStore : OpenRbdStore;
  ASSIGN_OR_RETURN(store_, open(options_, seen_->at_open()));
  return absl::OkStatus();
}

absl::Status TgtArrayImpl::MakeParts() {
  room_ = std::make_unique<PoolRoom>(options_.limits, *store_.images, *store_.catalogue);
  copies_ = std::make_unique<VolumeCopies>(*store_.catalogue, *store_.images, *room_, gates_);
  // The callbacks use parts that are made below; they are called only after StartServing.
  ASSIGN_OR_RETURN(servers_,
                   TgtServers::Make({.array = options_.name,
                                     .cache_id = store_.cache_id,
                                     .directory = options_.pool_dir,
                                     .first = {.control_port = options_.control_port,
                                               .portals = options_.portals,
                                               .binary = options_.tgtd_binary,
                                               .io_threads = options_.tgtd_io_threads,
                                               .output_path = options_.tgtd_output_path,
                                               .lock_path = {}},
                                     .peer_portals = options_.peer_portals,
                                     .tgtds = options_.tgtds,
                                     .drain_timeout = options_.drain_timeout,
                                     .accounts_kept_for = options_.accounts_kept_for,
                                     .list_heartbeat_luns = [this] { return heartbeat_luns_->ServeAgain(); },
                                     .tick =
                                         [this] {
                                           seen_->SyncToDisk();
                                           store_.images->ReserveRoom();
                                           store_.images->ForgetClosed([this] { return ListGranted(); });
                                         }},
                                    *store_.catalogue, *store_.images, gates_));
  barrier_ = std::make_unique<WriteBarrier>(*servers_);
  heartbeat_luns_ = std::make_unique<HeartbeatLunTable>(
      *store_.catalogue, options_.pool_dir + "/heartbeat_luns", servers_->TableOf(GrantRow{}),
      servers_->first(), options_.tidy_heartbeat_luns_every);
  parts_.emplace(TgtParts{.options = options_,
                          .check_serving = [this] { return CheckCall(); },
                          .object_locks = object_locks_,
                          .images = *store_.images,
                          .room = *room_,
                          .catalogue = *store_.catalogue,
                          .seen = *seen_,
                          .gates = gates_,
                          .shares = shares_,
                          .copies = *copies_,
                          .servers = *servers_,
                          .barrier = *barrier_,
                          .heartbeat_luns = *heartbeat_luns_});
  return absl::OkStatus();
}

absl::Status TgtArrayImpl::CheckServing() const {
  if (leaving_)
    return absl::UnavailableError("array " + options_.name + " goes to another gateway; ask again");
  if (serving_) return store_.images->CheckHeld();
  std::string why = "the pool was restored and was accepted, and serving it failed";
  if (is_backup_)
    why = "the pool is a backup";
  else if (sequence() < seen_->at_open())
    why = absl::StrCat("its catalogue has seen ", sequence(), " changes, but ", seen_->at_open(),
                       " are remembered: the pool was restored from an older copy");
  return absl::UnavailableError(absl::StrCat(
      "array ", options_.name, " does not serve: ", why,
      ". Volumes may have other contents and other holders than the cluster believes. Stop what uses "
      "them, then run `lunkeeper accept-restore`, which ends every grant"));
}

absl::Status TgtArrayImpl::CheckTgtd() const {
  RETURN_IF_ERROR(CheckServing());
  return servers_->CheckAnswering();
}

absl::StatusOr<GrantUse> TgtArrayImpl::MeasureGrants() const {
  ASSIGN_OR_RETURN(const std::vector<GrantRow> grants, store_.catalogue->grants().ListAllGrants());
  ASSIGN_OR_RETURN(const auto by_target, store_.catalogue->grants().ListByTarget());
  return GrantUse{.grants_of_tgtds = servers_->CountGrants(grants),
                  .releasing = static_cast<uint64_t>(std::ranges::count(grants, true, &GrantRow::releasing)),
                  .oldest_release = servers_->OldestRelease(),
                  .tgtd_deaths = servers_->CountDeaths(),
                  .refused_logins = servers_->CountRefusedLogins(),
                  .ended_connections = servers_->CountEndedConnections(),
                  .sessions = servers_->CountSessions(*by_target)};
}

absl::Status TgtArrayImpl::AcceptRestore() {
  const absl::MutexLock lock(&restore_mu_);
  if (serving_) return absl::OkStatus();
  if (is_backup_) RETURN_IF_ERROR(CheckRestoredImages(options_.pool_dir));
  // Numbers first: from here on a crash leads back here, and no number of the lost time is given out again.
  RETURN_IF_ERROR(store_.catalogue->SkipTo(seen_->at_open()));
  FAIL_POINT("array.restore.accepted");
  if (is_backup_) RETURN_IF_ERROR(TakeBackup());
  return BeginServing();
}

// From here on it is a pool as any.
absl::Status TgtArrayImpl::TakeBackup() {
  RETURN_IF_ERROR(RemoveBackupManifest(options_.pool_dir));
  is_backup_ = false;
  return absl::OkStatus();
}

absl::Status TgtArrayImpl::BackUp(const std::string& folder, const BackupWatch& watch) {
  RETURN_IF_ERROR(CheckServing());
  if (!options_.ceph.pool.empty())
    return absl::FailedPreconditionError(absl::StrCat("array ", options_.name,
                                                      ": its volumes are in a pool of Ceph: use Ceph's own "
                                                      "means, such as `rbd snap create` and `rbd export`"));
  if (!backup_mu_.TryLock())
    return absl::AbortedError(absl::StrCat("array ", options_.name, ": another backup is being made"));
  const absl::Status made = BackUpPool({options_.name, options_.pool_dir, folder, store_.cache_id},
                                       *store_.catalogue, *store_.images, watch);
  backup_mu_.Unlock();
  return made;
}

// One lease serves the whole life of the array, so after OK every repetition is UNAVAILABLE.
absl::Status TgtArrayImpl::HandOver(const HandoverWatch& watch) {
  if (store_.lease == nullptr)
    return absl::FailedPreconditionError(
        absl::StrCat("array ", options_.name,
                     ": its volumes are files of this host, which no gateway elsewhere can serve; "
                     "docs/shared-disks.md says how a pool moves"));
  if (!handover_mu_.TryLock())
    return absl::AbortedError(absl::StrCat("array ", options_.name, ": it is being handed over already"));
  const HandoverParts parts = {.array = options_.name,
                               .pool_dir = options_.pool_dir,
                               .peer_portals = options_.peer_portals,
                               .lease = *store_.lease,
                               .servers = *servers_,
                               .stop_serving = [this] {
                                 leaving_ = true;
                                 heartbeat_luns_->StopLooking();
                               }};
  absl::Status status = CheckServing();
  if (status.ok()) status = HandOverArray(parts, watch);
  handover_mu_.Unlock();
  return status;
}

// A file may get its own name only by being tidied, and tgtd opens it by that. An image always has its name.
absl::Status TgtArrayImpl::BeginServing() {
  const bool are_files = store_.lease == nullptr;
  if (are_files) RETURN_IF_ERROR(TidyImages());
  RETURN_IF_ERROR(copies_->ResumeCopies());
  RETURN_IF_ERROR(heartbeat_luns_->LoadRows());
  RETURN_IF_ERROR(servers_->StartServing());
  // Nodes have their volumes, and keep them, whatever fails from here on.
  if (!are_files) {
    store_.lease->NoteServed();
    store_.lease->times().EndPhase("targets");
    RETURN_IF_ERROR(TidyImages());
  }
  heartbeat_luns_->StartLooking();
  if (are_files) TakeThickSpace(*store_.catalogue, *store_.images, *room_);
  serving_ = true;
  if (!are_files) {
    store_.lease->NoteStarted();
    store_.lease->times().NoteServing();
  }
  parts_->RememberSequence();
  return absl::OkStatus();
}

// The images that tgtd may have open: a grant's row goes after its target.
absl::StatusOr<std::set<std::string>> TgtArrayImpl::ListGranted() const {
  ASSIGN_OR_RETURN(const std::vector<GrantRow> grants, store_.catalogue->grants().ListAllGrants());
  std::set<std::string> images;
  for (const GrantRow& grant : grants) images.insert(store_.images->VolumePath(grant.volume));
  return images;
}

// Once: when a start is repeated, copies that were resumed may be under way, and their files have no rows.
absl::Status TgtArrayImpl::TidyImages() {
  if (tidied_) return absl::OkStatus();
  RETURN_IF_ERROR(copies_->EndFinished());
  std::set<std::string> known;
  ASSIGN_OR_RETURN(const std::vector<VolumeRow> volumes, store_.catalogue->volumes().ListAllVolumes());
  for (const VolumeRow& row : volumes) {
    if (!row.copying) known.insert(store_.images->VolumePath(row.volume.id));
  }
  ASSIGN_OR_RETURN(const std::vector<SnapshotRow> snapshots, store_.catalogue->volumes().ListAllSnapshots());
  for (const SnapshotRow& row : snapshots) {
    if (row.snapshot.ready) known.insert(store_.images->SnapshotPath(row.snapshot.source, row.snapshot.id));
  }
  RETURN_IF_ERROR(store_.images->TidyImages(known, absl::StrCat(options_.name, "-")));
  tidied_ = true;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TgtArray>> OpenTgtArray(const TgtArrayOptions& options) {
  auto array = std::make_unique<TgtArrayImpl>(options);
  const absl::Status opened = array->OpenPool();
  if (opened.ok()) return array;
  array->LeaveToOthers();
  return opened;
}

}  // namespace lunkeeper
