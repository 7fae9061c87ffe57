// The order: the catalogue first, since a volume that is newer than it would be a file without a row, which
// is set aside when the backup is served; then each image that it names. What was deleted meanwhile has a row
// and no image: its row is taken out of the copy. The manifest's last line comes when all is on the disk.
#include "devices/array/tgt/pool_backup.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "devices/array/tgt/backup_catalogue.h"
#include "devices/array/tgt/backup_folder.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/held_image.h"
#include "devices/array/tgt/hold_watch.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kReportInterval = absl::Milliseconds(200);

uint64_t RoomIn(const std::string& directory) {
  struct statvfs file_system {};
  if (::statvfs(directory.c_str(), &file_system) != 0) return 0;
  return file_system.f_bavail * file_system.f_frsize;
}

class Backup {
 public:
  Backup(const BackupRequest& request, Catalogue& catalogue, const ImageStore& images,
         const BackupWatch& watch)
      : request_(request), catalogue_(catalogue), images_(images), watch_(watch) {}

  absl::Status Run();

 private:
  absl::Status CopyCatalogue();
  bool IsKept(const std::string& name) const;
  absl::Status CheckRoom();
  absl::Status CopyImage(const std::string& name, bool made);
  absl::Status CheckIsDeleted(const std::string& name, bool made);
  absl::Status Watch(const HoldWatch& hold);
  absl::Status ForgetDeleted();
  std::string InPool(const std::string& name) const { return absl::StrCat(request_.pool, "/", name); }

  const BackupRequest& request_;
  Catalogue& catalogue_;
  const ImageStore& images_;
  const BackupWatch& watch_;
  std::unique_ptr<BackupFolder> folder_;
  std::map<std::string, bool> listed_;  // images of the copied catalogue, as ListCatalogueImages says
  std::set<std::string> copied_;        // images that are in the folder
  BackupProgress progress_;
  SteadyDeadline next_report_{absl::ZeroDuration()};
};

absl::Status Backup::Run() {
  if (!images_.can_clone())
    return absl::FailedPreconditionError(absl::StrCat(
        "backup of ", request_.pool,
        ": its file system cannot reflink, so a volume that is in use cannot be copied as of one "
        "moment; stop the agent and tgtd and copy the pool, or put it on XFS"));
  ASSIGN_OR_RETURN(folder_, BackupFolder::Open(request_.folder, request_.pool, request_.array));
  RETURN_IF_ERROR(CopyCatalogue());
  FAIL_POINT("array.backup.catalogue_copied");
  ASSIGN_OR_RETURN(listed_, ListCatalogueImages(folder_->PathOf(kCatalogueFile)));
  RETURN_IF_ERROR(folder_->DiscardImages([this](const std::string& name) { return IsKept(name); }));
  RETURN_IF_ERROR(CheckRoom());
  for (const auto& [name, made] : listed_) RETURN_IF_ERROR(CopyImage(name, made));
  RETURN_IF_ERROR(ForgetDeleted());
  FAIL_POINT("array.backup.rows_forgotten");
  RETURN_IF_ERROR(folder_->Finish());
  watch_(progress_);
  return absl::OkStatus();
}

absl::Status Backup::CopyCatalogue() {
  const std::string path = folder_->PathOf(kCatalogueFile);
  RETURN_IF_ERROR(folder_->Discard(kCatalogueFile));
  for (const char* suffix : kCatalogueLogs)
    RETURN_IF_ERROR(folder_->Discard(absl::StrCat(kCatalogueFile, suffix)));
  const absl::Status copied = catalogue_.CopyTo(path);
  if (copied.ok()) return copied;
  return absl::Status(copied.code(), absl::StrCat("backup to ", path, ": ", copied.message()));
}

// An earlier call has copied it, and nobody has written to it since. A volume that has grown was.
bool Backup::IsKept(const std::string& name) const {
  const BackedUpFile* const there = folder_->FindFile(name);
  if (there == nullptr || !listed_.contains(name)) return false;
  const auto here = LookAtImage(InPool(name), request_.cache_id);
  if (!here.ok() || here->size_bytes != there->size_bytes) return false;
  return absl::StartsWith(name, "snapshots/") ||
         (here->version == there->version && here->version != kUnknownVersion);
}

// Holes are kept, so an image takes no more there than here. What images share is counted for each: a copy
// shares nothing.
absl::Status Backup::CheckRoom() {
  progress_.images = listed_.size();
  for (const auto& [name, made] : listed_)
    if (!IsKept(name)) progress_.bytes += images_.MeasureImage(InPool(name)).value_or(0);
  const uint64_t free = RoomIn(request_.folder);
  if (progress_.bytes <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("backup to ", request_.folder, ": ", progress_.bytes,
                                                   " bytes are needed, and ", free,
                                                   " are left: name a folder on a larger file system"));
}

absl::Status Backup::CopyImage(const std::string& name, bool made) {
  progress_.image = name;
  if (!watch_(progress_)) return absl::CancelledError("backup: nobody waits for it now");
  if (!IsKept(name)) {
    if (absl::StartsWith(name, "volumes/")) RETURN_IF_ERROR(CheckRoomToHold(images_, InPool(name)));
    const auto held = HoldImage(InPool(name), request_.cache_id, made);
    if (absl::IsNotFound(held.status())) {
      RETURN_IF_ERROR(folder_->Discard(name));
      return CheckIsDeleted(name, made);
    }
    RETURN_IF_ERROR(held.status());
    const HoldWatch hold(images_, held->fd.get());
    RETURN_IF_ERROR(folder_->CopyIn(name, *held, [&](uint64_t bytes) {
      progress_.copied_bytes += bytes;
      return Watch(hold);
    }));
  }
  copied_.insert(name);
  ++progress_.done_images;
  return absl::OkStatus();
}

// The image has no file; a deletion takes the file's last name away only when the row is gone.
absl::Status Backup::CheckIsDeleted(const std::string& name, bool made) {
  if (!made) return absl::OkStatus();
  const std::string id = name.substr(name.find('/') + 1);
  ASSIGN_OR_RETURN(const auto volumes, catalogue_.volumes().ListAllVolumes());
  ASSIGN_OR_RETURN(const auto snapshots, catalogue_.volumes().ListAllSnapshots());
  const bool known =
      std::ranges::any_of(volumes, [&](const VolumeRow& row) { return row.volume.id.value() == id; }) ||
      std::ranges::any_of(snapshots, [&](const SnapshotRow& row) { return row.snapshot.id.value() == id; });
  if (!known) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("backup of ", request_.pool, ": the catalogue has ", id, ", but ", InPool(name),
                   " is missing: put that file back, or delete the volume or snapshot; then "
                   "repeat the command"));
}

absl::Status Backup::Watch(const HoldWatch& hold) {
  const absl::Status held = hold.Check();
  if (!held.ok())
    return absl::Status(held.code(), absl::StrCat("backup of ", progress_.image, ": ", held.message()));
  if (!next_report_.IsOver()) return absl::OkStatus();
  next_report_ = SteadyDeadline(kReportInterval);
  return watch_(progress_) ? absl::OkStatus() : absl::CancelledError("backup: nobody waits for it now");
}

absl::Status Backup::ForgetDeleted() {
  const std::set<std::string> before = copied_;
  RETURN_IF_ERROR(ForgetUncopied(folder_->PathOf(kCatalogueFile), &copied_));
  for (const std::string& name : before)
    if (!copied_.contains(name)) RETURN_IF_ERROR(folder_->Discard(name));
  return absl::OkStatus();
}

}  // namespace

absl::Status BackUpPool(const BackupRequest& request, Catalogue& catalogue, const ImageStore& images,
                        const BackupWatch& watch) {
  return Backup(request, catalogue, images, watch).Run();
}

}  // namespace lunkeeper
