#pragma once
// A store of which one image does not answer, or is damaged, as a placement group of Ceph that is down.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/pool_clones.h"

namespace lunkeeper::testing {

// Files, one of which does not answer for now. Only what targets need of a store.
class OneIsSilent final : public ImageStore {
 public:
  explicit OneIsSilent(std::string directory) : directory_(std::move(directory)) {}
  ~OneIsSilent() override { LetAnswer(); }
  void Silence(const VolumeId& id) { silent_ = VolumePath(id); }
  // Only when tgtd has it open.
  void SilenceRegistering(const VolumeId& id) { unregistered_ = VolumePath(id); }
  // Its answer is an error, after this.
  void Damage(const VolumeId& id, std::function<void()> before) {
    before_ = std::move(before);
    damaged_ = VolumePath(id);
  }
  void LetAnswer() {
    if (!answers_.HasBeenNotified()) answers_.Notify();
  }

  std::string VolumePath(const VolumeId& id) const override { return directory_ + "/volumes/" + id.value(); }
  absl::StatusOr<LunBacking> BackingOf(const std::string& path) const override {
    if (path == silent_) answers_.WaitForNotification();
    if (path == damaged_) {
      before_();
      return kNot;
    }
    LunBacking backing = {.path = path, .may_be_silent_alone = true};
    if (path == unregistered_) backing.opened = [this, path] { return RegisterOpened(path, {}).status(); };
    return backing;
  }
  absl::StatusOr<std::set<std::string>> RegisterOpened(const std::string& path, LunsOfImage) const override {
    if (path == unregistered_) answers_.WaitForNotification();
    if (const absl::Status looked = BackingOf(path).status(); !looked.ok()) return looked;
    return std::set<std::string>();
  }

  std::string SnapshotPath(const VolumeId&, const SnapshotId&) const override { return ""; }
  absl::Status CheckIsClosed(const std::string&) const override { return kNot; }
  absl::Status CheckHeld() const override { return kNot; }
  absl::Status ConfirmHeld() const override { return kNot; }
  void ForgetClosed(const std::function<absl::StatusOr<std::set<std::string>>()>&) const override {}
  bool can_clone() const override { return false; }
  absl::Status CreateImage(const std::string&, uint64_t, Provisioning) const override { return kNot; }
  absl::Status CloneImage(const std::string&, const std::string&, uint64_t, Provisioning,
                          bool) const override {
    return kNot;
  }
  absl::Status CopyImage(const std::string&, const std::string&, uint64_t, Provisioning,
                         const std::function<bool(uint64_t)>&) const override {
    return kNot;
  }
  absl::StatusOr<std::unique_ptr<PoolClones>> MakeClones(std::vector<PoolClone>) const override {
    return kNot;
  }
  absl::Status GrowImage(const std::string&, uint64_t, Provisioning) const override { return kNot; }
  absl::Status SyncImage(const std::string&) const override { return kNot; }
  absl::Status KeepImage(const std::string&) const override { return kNot; }
  void DropNewImage(const std::string&) const override {}
  absl::Status MarkDeleted(const std::string&) const override { return kNot; }
  absl::Status UnmarkDeleted(const std::string&) const override { return kNot; }
  absl::Status RemoveMarked(const std::string&) const override { return kNot; }
  absl::Status TidyImages(const std::set<std::string>&, const std::string&) const override { return kNot; }
  absl::StatusOr<std::vector<OrphanFile>> ListOrphans() const override { return kNot; }
  absl::Status DeleteOrphan(const std::string&) const override { return kNot; }
  absl::StatusOr<uint64_t> ReadSize(const std::string&) const override { return kNot; }
  absl::StatusOr<uint64_t> MeasureImage(const std::string&) const override { return kNot; }
  absl::StatusOr<PoolCapacity> MeasureCapacity() const override { return kNot; }
  absl::StatusOr<BlockPage> FindData(const PoolImage&, uint64_t, size_t) const override { return kNot; }
  absl::StatusOr<BlockPage> FindChanges(const PoolImage&, const PoolImage&, uint64_t, size_t) const override {
    return kNot;
  }
  void ReserveRoom() const override {}

 private:
  inline static const absl::Status kNot = absl::UnimplementedError("not of this store");
  const std::string directory_;
  std::string silent_, unregistered_, damaged_;
  std::function<void()> before_;
  mutable absl::Notification answers_;
};

}  // namespace lunkeeper::testing
