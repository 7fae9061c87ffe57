#pragma once
// The store of RBD images in a pool of a Ceph cluster (image_store.h), beside others' images:
//
//   lunkeeper.ARRAY.ID         the image of a volume; a snapshot is one of RBD's own, IMAGE@ID
//   lunkeeper.ARRAY.images     an object whose keys are images' and snapshots' names, and its values what
//   each is:
//
//   no key --> new --KeepImage--> kept --PrepareDeletion--> deleted --RemoveMarked--> removed --> no key and
//                                  |                                    no image (or later: rbd_removals.h)
//                                  +--TidyImages, without a row--> orphan
//
// The mark is there before the image. So what has none was made by somebody else, and is not touched; it is
// an orphan if it has the name of a volume or snapshot of this array, whose mark is lost.
//
// A clone keeps what it was made from, without a name; so does a deleted volume with snapshots. Only thin
// volumes. Images of another array, or of nobody, are not touched.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "devices/array/tgt/ceph_pool.h"
#include "devices/array/tgt/gateway_lease.h"
#include "devices/array/tgt/image_questions.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/rbd_removals.h"

namespace lunkeeper {

class RbdStore final : public ImageStore {
 public:
  // `lock`: held while it lives.
  RbdStore(std::unique_ptr<CephPool> pool, const std::string& array, UniqueFd lock)
      : lock_(std::move(lock)),
        pool_(std::move(pool)),
        prefix_("lunkeeper." + array + "."),
        marks_(prefix_ + "images"),
        removals_(*pool_, prefix_, marks_, pool_->options().removals_every) {}

  // Before anything is written: from now on it has the lease, and its pool is the one of TakeArray.
  void KeepLease(std::unique_ptr<GatewayLease> lease) { lease_ = std::move(lease); }

  std::string VolumePath(const VolumeId& id) const override;
  std::string SnapshotPath(const VolumeId& source, const SnapshotId& id) const override;
  // FAILED_PRECONDITION: this image's own settings turn a cache on.
  absl::StatusOr<LunBacking> BackingOf(const std::string& path) const override;
  absl::Status CheckIsClosed(const std::string& path) const override;
  absl::Status CheckHeld() const override { return lease_->CheckHeld(); }
  absl::Status ConfirmHeld() const override { return lease_->ConfirmHeld(); }
  absl::StatusOr<std::set<std::string>> ListOpeners(const std::string& path) const override;
  absl::Status NoteOpening(const std::string& path) const override { return lease_->RegisterImage(path, {}); }
  absl::StatusOr<std::string> RegisterOpened(const std::string& path, const std::set<std::string>& before,
                                             const std::function<bool()>& is_awaited) const override;
  void ForgetClosed(const std::function<absl::StatusOr<std::set<std::string>>()>& list_open) const override;
  bool IsRegistered(const std::string& path) const override { return lease_->clients().IsRegistered(path); }
  std::set<std::string> ListClients(const std::string& path) const override {
    return lease_->clients().ClientsOf(path);
  }
  absl::StatusOr<std::set<std::string>> FindShutOut() const override {
    return lease_->clients().FindShutOut();
  }
  void EndClients(const std::string& path, const std::set<std::string>& clients) const override {
    lease_->clients().NoteEnded(path, clients);
  }
  bool may_be_silent_alone() const override { return true; }
  bool can_clone() const override { return true; }

  absl::Status CreateImage(const std::string& path, uint64_t size_bytes,
                           Provisioning provisioning) const override;
  absl::Status CloneImage(const std::string& from, const std::string& to, uint64_t size_bytes,
                          Provisioning provisioning, bool own_space) const override;
  absl::Status CopyImage(const std::string& from, const std::string& to, uint64_t size_bytes,
                         Provisioning provisioning,
                         const std::function<bool(uint64_t)>& progress) const override;
  absl::StatusOr<std::unique_ptr<PoolClones>> MakeClones(std::vector<PoolClone> clones) const override;
  absl::Status GrowImage(const std::string& path, uint64_t size_bytes,
                         Provisioning provisioning) const override;
  // Without a cache every write that was answered is on the OSDs.
  absl::Status SyncImage(const std::string&) const override { return absl::OkStatus(); }
  absl::Status KeepImage(const std::string& path) const override;
  void DropNewImage(const std::string& path) const override;
  // Marks it. UNAVAILABLE: somebody has it open.
  absl::Status PrepareDeletion(const std::string& path) const override;
  // It has its mark. Nothing is asked of Ceph here: one silent placement group would keep all fences waiting.
  absl::Status MarkDeleted(const std::string&) const override { return absl::OkStatus(); }
  absl::Status UnmarkDeleted(const std::string& path) const override;
  absl::Status RemoveMarked(const std::string& path) const override;
  // Leaves an image as it is, with its snapshots, that does not answer or is damaged: the next start looks
  // again.
  absl::Status TidyImages(const std::set<std::string>& known, const std::string& prefix) const override;
  absl::StatusOr<std::vector<OrphanFile>> ListOrphans() const override;
  absl::Status DeleteOrphan(const std::string& name) const override;
  absl::StatusOr<uint64_t> ReadSize(const std::string& path) const override;
  absl::StatusOr<uint64_t> MeasureImage(const std::string& path) const override;
  absl::StatusOr<PoolCapacity> MeasureCapacity() const override { return pool_->MeasureCapacity(); }
  absl::StatusOr<BlockPage> FindData(const PoolImage& image, uint64_t offset, size_t limit) const override;
  absl::StatusOr<BlockPage> FindChanges(const PoolImage& base, const PoolImage& image, uint64_t offset,
                                        size_t limit) const override;
  void ReserveRoom() const override {}
  // Images of this array in the pool, and their snapshots.
  absl::StatusOr<std::vector<std::string>> ListNames() const;

 private:
  absl::StatusOr<std::set<ClientAddress>> FindOpen(const std::string& path) const;
  RbdName NameOf(const std::string& path) const;
  absl::Status CloneVolume(const RbdName& from, const RbdName& to, uint64_t size_bytes) const;
  absl::Status CloneSnapshot(const RbdName& from, const RbdName& to) const;
  absl::Status MakeSnapshot(const RbdName& name) const;
  // Before it is made.
  absl::Status MarkNew(const RbdName& name) const;
  struct Listing {
    std::vector<std::string> names;  // as of ListNames
    std::set<std::string> unread;    // the images among them whose snapshots cannot be listed
  };
  absl::StatusOr<Listing> ListAll() const;
  absl::Status TidyOne(const RbdName& name, const std::string& mark, bool known) const;
  absl::StatusOr<BlockPage> ListDiff(const PoolImage& image, const char* base, uint64_t offset,
                                     size_t limit) const;

  const UniqueFd lock_;
  const std::unique_ptr<CephPool> pool_;
  std::unique_ptr<GatewayLease> lease_;  // constant once it is kept
  const std::string prefix_;
  const std::string marks_;
  mutable RbdRemovals removals_;
  mutable ImageQuestions<std::vector<std::string>> snapshots_;  // last: its threads use the others
};

}  // namespace lunkeeper
