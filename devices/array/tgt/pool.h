#pragma once
// The store of files (image_store.h): one for each volume and snapshot, in one directory on one file system.
// A call's result is on the disk, with its directory entry, when it returns OK. One process owns the
// directory (flock) while the Pool lives.
//
// A file is made as ID.new, becomes ID by KeepImage, and ID.gone by MarkDeleted.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/ballast.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

class Pool final : public ImageStore {
 public:
  // Makes the directory if need be. FAILED_PRECONDITION: another process owns it, or its path has a comma
  // (tgtd's separator) or is not absolute.
  static absl::StatusOr<std::unique_ptr<Pool>> Open(const std::string& directory);

  std::string VolumePath(const VolumeId& id) const override;
  std::string SnapshotPath(const VolumeId& source, const SnapshotId& id) const override;
  absl::StatusOr<LunBacking> BackingOf(const std::string& path) const override;
  // Nobody else uses the directory.
  absl::Status CheckIsClosed(const std::string&) const override { return absl::OkStatus(); }
  absl::Status CheckHeld() const override { return absl::OkStatus(); }
  absl::Status ConfirmHeld() const override { return absl::OkStatus(); }
  std::shared_ptr<const ImageErrors> WatchErrors(const std::string& path) const override
      ABSL_LOCKS_EXCLUDED(watches_mu_);
  void ForgetClosed(const std::function<absl::StatusOr<std::set<std::string>>()>&) const override {}
  std::string CataloguePath() const;
  // Whether copies are reflinks.
  bool can_clone() const override { return reflinks_; }

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
  absl::Status SyncImage(const std::string& path) const override;
  absl::Status KeepImage(const std::string& path) const override;
  void DropNewImage(const std::string& path) const override;
  absl::Status MarkDeleted(const std::string& path) const override;
  absl::Status UnmarkDeleted(const std::string& path) const override;
  absl::Status RemoveMarked(const std::string& path) const override;
  absl::Status TidyImages(const std::set<std::string>& known, const std::string& prefix) const override;
  absl::StatusOr<std::vector<OrphanFile>> ListOrphans() const override;
  absl::Status DeleteOrphan(const std::string& name) const override;
  absl::StatusOr<uint64_t> ReadSize(const std::string& path) const override;
  absl::StatusOr<uint64_t> MeasureImage(const std::string& path) const override;
  absl::StatusOr<PoolCapacity> MeasureCapacity() const override;
  absl::StatusOr<BlockPage> FindData(const PoolImage& image, uint64_t offset, size_t limit) const override;
  absl::StatusOr<BlockPage> FindChanges(const PoolImage& base, const PoolImage& image, uint64_t offset,
                                        size_t limit) const override;
  void ReserveRoom() const override { ballast_.ReserveSpace(); }
  // Every file of a volume or snapshot.
  absl::StatusOr<std::vector<std::string>> ListFiles() const;
  // For what must go on when the pool is full; deletions take it by themselves.
  Ballast& ballast() const { return ballast_; }

 private:
  Pool(const std::string& directory, UniqueFd lock)
      : directory_(directory), lock_(std::move(lock)), ballast_(directory + "/ballast") {}
  absl::StatusOr<bool> TryReflink() const;
  // As rename, but never over another file.
  absl::Status RenameFile(const std::string& from, const std::string& to) const;
  absl::Status SetAside(const std::string& path) const;
  std::shared_ptr<const ImageErrors> FindWatch(const std::string& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(watches_mu_);

  const std::string directory_;
  const UniqueFd lock_;
  bool reflinks_ = false;
  mutable Ballast ballast_;
  mutable absl::Mutex watches_mu_;
  // By path. Each watch has the image note an error it sees, so there is one for all grants of a volume.
  mutable std::map<std::string, std::weak_ptr<const ImageErrors>> watches_ ABSL_GUARDED_BY(watches_mu_);
};

}  // namespace lunkeeper
