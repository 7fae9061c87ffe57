// The order: the catalogue first, since a volume that is newer than it would be a file without a row, which
// is set aside when the backup is served; then each image that it names. What was deleted meanwhile has a row
// and no image: its row is taken out of the copy. The manifest's last line comes when all is on the disk.
#include "devices/array/tgt/pool_backup.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "devices/array/tgt/backup_manifest.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/pool_file.h"
#include "devices/array/tgt/sqlite.h"

namespace lunkeeper {
namespace {

constexpr size_t kBlock = kMiB / 16;
constexpr absl::Duration kReportInterval = absl::Milliseconds(200);
constexpr char kCatalogueFile[] = "catalogue.db";
// SQLite's logs of a catalogue. It believes one that it finds, whatever file it was of.
constexpr const char* kLogSuffixes[] = {"-wal", "-journal"};
// The pool runs full: less than this share of it is free, and half of what was when the image was begun.
constexpr uint64_t kLowShare = 20;

// Where a file is, and how large.
struct FileFacts {
  dev_t file_system = 0;
  uint64_t size_bytes = 0;
};

absl::StatusOr<FileFacts> LookAt(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return FileError("look at", path, errno);
  return FileFacts{file.st_dev, static_cast<uint64_t>(file.st_size)};
}

absl::Status RemoveFile(const std::string& path) {
  return ::unlink(path.c_str()) == 0 || errno == ENOENT ? absl::OkStatus() : FileError("remove", path, errno);
}

uint64_t FreeBytes(const std::string& directory) {
  struct statvfs file_system {};
  if (::statvfs(directory.c_str(), &file_system) != 0) return 0;
  return file_system.f_bavail * file_system.f_frsize;
}

// Calls `each` for every block that is not zero, in order.
absl::Status ForEachBlock(int fd, const std::string& path,
                          const std::function<absl::Status(uint64_t offset, std::string_view block)>& each) {
  std::string block(kBlock, '\0');
  off_t offset = 0;
  while ((offset = ::lseek(fd, offset, SEEK_DATA)) >= 0) {
    offset -= offset % static_cast<off_t>(kBlock);
    const ssize_t size = ::pread(fd, block.data(), kBlock, offset);
    if (size < 0) return FileError("read", path, errno);
    if (size == 0) break;
    const std::string_view read(block.data(), static_cast<size_t>(size));
    if (read.find_first_not_of('\0') != std::string_view::npos)
      RETURN_IF_ERROR(each(static_cast<uint64_t>(offset), read));
    // Read once: nobody else is to lose the page cache for it.
    ::posix_fadvise(fd, offset, size, POSIX_FADV_DONTNEED);
    offset += size;
  }
  return offset >= 0 || errno == ENXIO ? absl::OkStatus() : FileError("find data of", path, errno);
}

absl::StatusOr<std::string> DigestOf(int fd, const std::string& path,
                                     const std::function<bool(uint64_t bytes)>& watch) {
  ImageDigest digest;
  RETURN_IF_ERROR(ForEachBlock(fd, path, [&](uint64_t at, std::string_view block) {
    digest.AddBlock(at, block);
    return watch(block.size()) ? absl::OkStatus() : absl::CancelledError("backup: nobody waits for it now");
  }));
  return digest.text();
}

// A file as of one moment, without a name. NOT_FOUND: it was deleted.
absl::StatusOr<UniqueFd> HoldImage(const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd source, OpenFile(path, O_RDONLY));
  const std::string directory = std::filesystem::path(path).parent_path();
  ASSIGN_OR_RETURN(UniqueFd held, OpenFile(directory, O_TMPFILE | O_RDWR));
  // Most of what is dirty is written here, where nobody waits, as in Pool::CloneImage.
  if (::fdatasync(source.get()) != 0) return FileError("sync", path, errno);
  if (::ioctl(held.get(), FICLONE, source.get()) != 0) return FileError("hold", path, errno);
  return held;
}

class Backup {
 public:
  Backup(const BackupRequest& request, Catalogue& catalogue, const ImageStore& images,
         const BackupWatch& watch)
      : request_(request), catalogue_(catalogue), images_(images), watch_(watch) {}

  absl::Status Run();

 private:
  absl::Status OpenFolder();
  absl::Status CheckFolder();
  absl::Status CopyCatalogue();
  absl::Status ListImages();
  absl::Status CheckRoom();
  bool IsKept(const std::string& name) const;
  absl::Status CopyImage(const std::string& name);
  absl::StatusOr<BackedUpFile> CopyOut(const UniqueFd& held, const std::string& name);
  absl::Status Watch(uint64_t free_before);
  absl::Status ForgetDeleted();
  absl::Status RemoveUnknown();
  absl::Status Finish();
  std::string InPool(const std::string& name) const { return absl::StrCat(request_.pool, "/", name); }
  std::string InFolder(const std::string& name) const { return absl::StrCat(request_.folder, "/", name); }

  const BackupRequest& request_;
  Catalogue& catalogue_;
  const ImageStore& images_;
  const BackupWatch& watch_;
  UniqueFd file_;                // the manifest
  BackupManifest manifest_;      // as it was found
  std::set<std::string> names_;  // of the images: their paths in the pool, and in the folder
  BackupProgress progress_;
  absl::Time reported_ = absl::InfinitePast();
};

absl::Status Backup::Run() {
  if (!images_.can_clone())
    return absl::FailedPreconditionError(absl::StrCat(
        "backup of ", request_.pool,
        ": its file system cannot reflink, so a volume that is in use cannot be copied as of one "
        "moment; stop the agent and tgtd and copy the pool, or put it on XFS"));
  RETURN_IF_ERROR(OpenFolder());
  RETURN_IF_ERROR(CopyCatalogue());
  RETURN_IF_ERROR(ListImages());
  RETURN_IF_ERROR(CheckRoom());
  for (const std::string& name : std::set<std::string>(names_)) RETURN_IF_ERROR(CopyImage(name));
  RETURN_IF_ERROR(ForgetDeleted());
  RETURN_IF_ERROR(RemoveUnknown());
  return Finish();
}

absl::Status Backup::OpenFolder() {
  const std::string& folder = request_.folder;
  if (!absl::StartsWith(folder, "/"))
    return absl::InvalidArgumentError(absl::StrCat("backup to ", folder, ": it must be an absolute path"));
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return FileError("make directory", folder, errno);
  RETURN_IF_ERROR(CheckFolder());
  ASSIGN_OR_RETURN(file_, OpenBackupManifest(folder, request_.array));
  RETURN_IF_ERROR(MakeDirectory(InFolder("volumes")));
  return MakeDirectory(InFolder("snapshots"));
}

absl::Status Backup::CheckFolder() {
  const std::string what = absl::StrCat("backup to ", request_.folder, ": ");
  ASSIGN_OR_RETURN(const FileFacts folder, LookAt(request_.folder));
  ASSIGN_OR_RETURN(const FileFacts pool, LookAt(request_.pool));
  if (folder.file_system == pool.file_system)
    return absl::FailedPreconditionError(absl::StrCat(
        what, "it is on the pool's own file system, and would be lost with it: name a folder on another"));
  const auto before = ReadBackupManifest(request_.folder);
  std::error_code error;
  if (absl::IsNotFound(before.status()) && !std::filesystem::is_empty(request_.folder, error))
    return absl::FailedPreconditionError(
        absl::StrCat(what, "it has files, and is no backup: name a new folder"));
  if (absl::IsNotFound(before.status())) return absl::OkStatus();
  RETURN_IF_ERROR(before.status());
  manifest_ = *before;
  const bool others = !manifest_.array.empty() && manifest_.array != request_.array;
  if (!manifest_.whole && !others) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(what, "it has ", others ? "a" : "a whole",
                                                    " backup of array ", manifest_.array,
                                                    ": name a new folder"));
}

absl::Status Backup::CopyCatalogue() {
  const std::string old = InFolder(kCatalogueFile);
  RETURN_IF_ERROR(RemoveFile(old));
  for (const char* suffix : kLogSuffixes) RETURN_IF_ERROR(RemoveFile(old + suffix));
  return catalogue_.CopyTo(old);
}

absl::Status Backup::ListImages() {
  ASSIGN_OR_RETURN(const auto copy,
                   SqlDatabase::Open(InFolder(kCatalogueFile), SqlDatabase::Mode::kReadWrite));
  RETURN_IF_ERROR(copy->Query("SELECT id FROM volumes", {}, [&](const SqlRow& row) {
    names_.insert(absl::StrCat("volumes/", row.Text(0)));
  }));
  return copy->Query("SELECT id FROM snapshots", {},
                     [&](const SqlRow& row) { names_.insert(absl::StrCat("snapshots/", row.Text(0))); });
}

// Holes are kept, so an image takes no more there than here. What images share is counted for each: a copy
// shares nothing.
absl::Status Backup::CheckRoom() {
  progress_.images = names_.size();
  for (const std::string& name : names_)
    if (!IsKept(name)) progress_.bytes += images_.MeasureImage(InPool(name)).value_or(0);
  const uint64_t free = FreeBytes(request_.folder);
  if (progress_.bytes <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("backup to ", request_.folder, ": ", progress_.bytes,
                                                   " bytes are needed, and ", free,
                                                   " are left: name a folder on a larger file system"));
}

// An earlier call has copied it. A volume that has grown since is copied anew: its row says so.
bool Backup::IsKept(const std::string& name) const {
  const auto kept = manifest_.files.find(name);
  if (kept == manifest_.files.end()) return false;
  const auto here = LookAt(InPool(name)), there = LookAt(InFolder(name));
  return here.ok() && there.ok() && here->size_bytes == kept->second.size_bytes &&
         there->size_bytes == kept->second.size_bytes;
}

absl::Status Backup::CopyImage(const std::string& name) {
  progress_.image = name;
  if (!watch_(progress_)) return absl::CancelledError("backup: nobody waits for it now");
  if (!IsKept(name)) {
    const auto held = HoldImage(InPool(name));
    if (absl::IsNotFound(held.status())) {
      names_.erase(name);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(held.status());
    ASSIGN_OR_RETURN(const BackedUpFile file, CopyOut(*held, name));
    RETURN_IF_ERROR(AppendBackedUpFile(file_, name, file));
  }
  ++progress_.done_images;
  return absl::OkStatus();
}

absl::StatusOr<BackedUpFile> Backup::CopyOut(const UniqueFd& held, const std::string& name) {
  const std::string to = InFolder(name);
  ASSIGN_OR_RETURN(const UniqueFd out, OpenFile(to, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW));
  const uint64_t free_before = FreeBytes(request_.pool);
  ImageDigest digest;
  RETURN_IF_ERROR(ForEachBlock(held.get(), InPool(name), [&](uint64_t at, std::string_view block) {
    digest.AddBlock(at, block);
    progress_.copied_bytes += block.size();
    const ssize_t written = ::pwrite(out.get(), block.data(), block.size(), static_cast<off_t>(at));
    if (written != static_cast<ssize_t>(block.size()))
      return FileError("write", to, written < 0 ? errno : ENOSPC);
    return Watch(free_before);
  }));
  struct stat file {};
  if (::fstat(held.get(), &file) != 0) return FileError("look at", InPool(name), errno);
  if (::ftruncate(out.get(), file.st_size) != 0) return FileError("size", to, errno);
  if (::fsync(out.get()) != 0) return FileError("sync", to, errno);
  RETURN_IF_ERROR(SyncDirectoryOf(to));
  return BackedUpFile{.size_bytes = static_cast<uint64_t>(file.st_size), .digest = digest.text()};
}

absl::Status Backup::Watch(uint64_t free_before) {
  if (absl::Now() - reported_ < kReportInterval) return absl::OkStatus();
  reported_ = absl::Now();
  if (!watch_(progress_)) return absl::CancelledError("backup: nobody waits for it now");
  ASSIGN_OR_RETURN(const PoolCapacity pool, images_.MeasureCapacity());
  if (pool.available_bytes >= free_before / 2 || pool.available_bytes >= pool.total_bytes / kLowShare)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("backup of ", progress_.image,
                                                   ": the pool runs full, for it keeps what is overwritten "
                                                   "meanwhile; ",
                                                   pool.available_bytes,
                                                   " bytes are left; the backup has let go of it. Repeat "
                                                   "the command when less is written, or grow the pool"));
}

// Rows of images that are gone: a volume or snapshot that was deleted after the catalogue was copied, or one
// whose content was still being made then.
absl::Status Backup::ForgetDeleted() {
  ASSIGN_OR_RETURN(const auto copy,
                   SqlDatabase::Open(InFolder(kCatalogueFile), SqlDatabase::Mode::kReadWrite));
  std::vector<std::string> volumes, snapshots;
  const auto list = [&](const char* sql, const char* folder, std::vector<std::string>* gone) {
    return copy->Query(sql, {}, [&, folder, gone](const SqlRow& row) {
      if (!names_.contains(absl::StrCat(folder, row.Text(0)))) gone->push_back(row.Text(0));
    });
  };
  RETURN_IF_ERROR(list("SELECT id FROM volumes", "volumes/", &volumes));
  RETURN_IF_ERROR(list("SELECT id FROM snapshots", "snapshots/", &snapshots));
  for (const std::string& id : volumes) {
    RETURN_IF_ERROR(copy->Change("DELETE FROM grants WHERE volume = ?1", {id}).status());
    RETURN_IF_ERROR(copy->Change("DELETE FROM volumes WHERE id = ?1", {id}).status());
  }
  for (const std::string& id : snapshots)
    RETURN_IF_ERROR(copy->Change("DELETE FROM snapshots WHERE id = ?1", {id}).status());
  RETURN_IF_ERROR(
      copy->Change("DELETE FROM snapshot_groups WHERE id NOT IN (SELECT group_id FROM snapshots)", {})
          .status());
  // An image has its name only when it is whole: a copy that was under way has ended since.
  RETURN_IF_ERROR(copy->Change("UPDATE volumes SET copying = 0 WHERE copying = 1", {}).status());
  return copy->Change("UPDATE snapshots SET copying = 0 WHERE copying = 1", {}).status();
}

// What an earlier call has copied and was deleted since.
absl::Status Backup::RemoveUnknown() {
  for (const char* folder : {"volumes", "snapshots"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(InFolder(folder), error)) {
      const std::string name = absl::StrCat(folder, "/", entry.path().filename().string());
      if (names_.contains(name)) continue;
      if (::unlink(InFolder(name).c_str()) != 0) return FileError("remove", InFolder(name), errno);
      RETURN_IF_ERROR(AppendGone(file_, name));
    }
    if (error) return FileError("list", InFolder(folder), error.value());
  }
  return absl::OkStatus();
}

absl::Status Backup::Finish() {
  const std::string path = InFolder(kCatalogueFile);
  ASSIGN_OR_RETURN(const UniqueFd catalogue, OpenFile(path, O_RDONLY));
  if (::fsync(catalogue.get()) != 0) return FileError("sync", path, errno);
  RETURN_IF_ERROR(SyncDirectoryOf(path));
  ASSIGN_OR_RETURN(const FileFacts facts, LookAt(path));
  ASSIGN_OR_RETURN(const std::string digest, DigestOf(catalogue.get(), path, [](uint64_t) { return true; }));
  RETURN_IF_ERROR(AppendBackedUpFile(file_, kCatalogueFile, {facts.size_bytes, digest}));
  RETURN_IF_ERROR(AppendWhole(file_));
  watch_(progress_);
  return absl::OkStatus();
}

absl::Status VerifyFile(const std::string& path, const BackedUpFile& file,
                        const std::function<bool(uint64_t)>& watch) {
  const absl::StatusOr<UniqueFd> fd = OpenFile(path, O_RDONLY);
  if (absl::IsNotFound(fd.status()))
    return absl::DataLossError(absl::StrCat("backup: ", path, " is missing"));
  RETURN_IF_ERROR(fd.status());
  ASSIGN_OR_RETURN(const FileFacts facts, LookAt(path));
  ASSIGN_OR_RETURN(const std::string digest, DigestOf(fd->get(), path, watch));
  if (facts.size_bytes == file.size_bytes && digest == file.digest) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("backup: ", path, " is not what was written: make another backup, and look at that disk"));
}

absl::Status VerifyNoLog(const std::string& folder) {
  for (const char* suffix : kLogSuffixes) {
    const std::string log = absl::StrCat(folder, "/", kCatalogueFile, suffix);
    if (const auto file = LookAt(log); !file.ok() || file->size_bytes == 0) continue;
    return absl::DataLossError(absl::StrCat(
        "backup: ", log, " was not written by it, and would change the catalogue: remove that file"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BackUpPool(const BackupRequest& request, Catalogue& catalogue, const ImageStore& images,
                        const BackupWatch& watch) {
  return Backup(request, catalogue, images, watch).Run();
}

absl::Status VerifyBackup(const std::string& folder, const BackupWatch& watch) {
  ASSIGN_OR_RETURN(const BackupManifest manifest, ReadBackupManifest(folder));
  if (!manifest.whole)
    return absl::FailedPreconditionError(
        absl::StrCat("backup in ", folder, ": it broke off; repeat `lunkeeper backup` to finish it"));
  BackupProgress progress{.image = {}, .images = manifest.files.size()};
  for (const auto& [name, file] : manifest.files) {
    progress.image = name;
    const auto watch_file = [&](uint64_t bytes) {
      progress.copied_bytes += bytes;
      return watch(progress);
    };
    RETURN_IF_ERROR(VerifyFile(absl::StrCat(folder, "/", name), file, watch_file));
    ++progress.done_images;
  }
  watch(progress);
  return VerifyNoLog(folder);
}

absl::Status RemoveOldLog(const std::string& pool) {
  const auto manifest = ReadBackupManifest(pool);
  if (!manifest.ok()) return absl::IsNotFound(manifest.status()) ? absl::OkStatus() : manifest.status();
  const std::string path = absl::StrCat(pool, "/", kCatalogueFile);
  const auto copied = manifest->files.find(kCatalogueFile);
  // One that was changed since has a log of its own.
  if (copied == manifest->files.end() ||
      !VerifyFile(path, copied->second, [](uint64_t) { return true; }).ok())
    return absl::OkStatus();
  for (const char* suffix : kLogSuffixes) RETURN_IF_ERROR(RemoveFile(path + suffix));
  return SyncDirectoryOf(path);
}

}  // namespace lunkeeper
