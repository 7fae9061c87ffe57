// A file's order: its content, its name on the disk, its line in the manifest. A removal goes the other way:
// the line `gone`, then the file.
#include "devices/array/tgt/backup_folder.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "devices/array/tgt/backup_catalogue.h"
#include "devices/array/tgt/image_blocks.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

// Of a copy, in the page cache: what a slow disk has not taken yet would make all who write wait, tgtd too.
constexpr uint64_t kMostUnsynced = 16 * kMiB;

// Whether a file of `pool` could share blocks with one in `folder`. This is asked of the kernel: subvolumes
// of one btrfs have numbers as different file systems have.
absl::StatusOr<bool> IsSameFileSystem(const std::string& pool, const std::string& folder) {
  struct stat here {};
  struct stat there {};
  if (::stat(pool.c_str(), &here) != 0) return FileError("look at", pool, errno);
  if (::stat(folder.c_str(), &there) != 0) return FileError("look at", folder, errno);
  if (here.st_dev == there.st_dev) return true;
  ASSIGN_OR_RETURN(const UniqueFd source, OpenFile(pool, O_TMPFILE | O_RDWR));
  const UniqueFd copy(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  // Where there are no files without a name, there can be no pool that reflinks.
  if (!copy)
    return errno == EOPNOTSUPP || errno == EISDIR ? absl::StatusOr<bool>(false)
                                                  : FileError("make a file in", folder, errno);
  return ::ioctl(copy.get(), FICLONE, source.get()) == 0 || errno != EXDEV;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BackupFolder>> BackupFolder::Open(const std::string& given,
                                                                 const std::string& pool,
                                                                 const std::string& array) {
  const std::string what = absl::StrCat("backup to ", given, ": ");
  if (!absl::StartsWith(given, "/"))
    return absl::InvalidArgumentError(absl::StrCat(what, "it must be an absolute path"));
  const std::string folder(absl::StripSuffix(given, "/"));
  std::unique_ptr<BackupFolder> opened(new BackupFolder(folder, what));
  if (::mkdir(folder.c_str(), 0700) == 0) {
    RETURN_IF_ERROR(SyncDirectoryOf(folder));
  } else if (errno != EEXIST) {
    return FileError("make directory", folder, errno);
  }
  RETURN_IF_ERROR(opened->CheckIsElsewhere(pool));
  RETURN_IF_ERROR(opened->OpenManifest(array));
  RETURN_IF_ERROR(opened->MakeImageFolders());
  RETURN_IF_ERROR(opened->DiscardUnlisted());
  return opened;
}

std::string BackupFolder::PathOf(const std::string& name) const { return absl::StrCat(folder_, "/", name); }

absl::Status BackupFolder::CheckIsElsewhere(const std::string& pool) const {
  ASSIGN_OR_RETURN(const bool same, IsSameFileSystem(pool, folder_));
  if (!same) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      what_, "it is on the pool's own file system, and would be lost with it: name a folder on another"));
}

// What has no manifest is nobody's backup, so nothing may be there.
absl::Status BackupFolder::CheckIsFree() const {
  std::error_code error;
  if (std::filesystem::is_empty(folder_, error)) return absl::OkStatus();
  if (error) return FolderError("look into", folder_, error.value());
  return absl::FailedPreconditionError(
      absl::StrCat(what_, "it has files, and is no backup: name a new folder"));
}

// Read once more when it is locked: another one may have been made meanwhile.
absl::Status BackupFolder::OpenManifest(const std::string& array) {
  const absl::Status found = ReadBackupManifest(folder_).status();
  RETURN_IF_ERROR(absl::IsNotFound(found) ? CheckIsFree() : found);
  if (::chmod(folder_.c_str(), 0700) != 0) return FolderError("protect", folder_, errno);
  ASSIGN_OR_RETURN(file_, OpenBackupManifest(folder_, array));
  FAIL_POINT("array.backup.begun");
  ASSIGN_OR_RETURN(manifest_, ReadBackupManifest(folder_));
  const bool others = manifest_.array != array;
  if (!manifest_.whole && !others) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(what_, "it has ", others ? "a" : "a whole",
                                                    " backup of array ", manifest_.array,
                                                    ": name a new folder"));
}

// A link or another file system in their place may lead to anything, also to the pool.
absl::Status BackupFolder::MakeImageFolders() const {
  struct stat folder {};
  if (::stat(folder_.c_str(), &folder) != 0) return FolderError("look at", folder_, errno);
  for (const char* images : kImageFolders) {
    const std::string path = PathOf(images);
    struct stat file {};
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      return FolderError("make directory", path, errno);
    if (::lstat(path.c_str(), &file) != 0) return FolderError("look at", path, errno);
    if (S_ISDIR(file.st_mode) && file.st_dev == folder.st_dev) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(what_, path, " is no directory of its own, and leads elsewhere: name a new folder"));
  }
  return absl::OkStatus();
}

// What was being copied when the backup broke off. First of all: it may be what has filled the disk, and then
// nothing else can be written, not even the manifest.
absl::Status BackupFolder::DiscardUnlisted() {
  ASSIGN_OR_RETURN(const std::set<std::string> names, ListBackupImages(folder_));
  for (const std::string& name : names)
    if (!manifest_.files.contains(name)) RETURN_IF_ERROR(Discard(name));
  return absl::OkStatus();
}

const BackedUpFile* BackupFolder::FindFile(const std::string& name) const {
  const auto found = manifest_.files.find(name);
  if (found == manifest_.files.end()) return nullptr;
  struct stat file {};
  const bool there = ::lstat(PathOf(name).c_str(), &file) == 0 && S_ISREG(file.st_mode) &&
                     static_cast<uint64_t>(file.st_size) == found->second.size_bytes;
  return there ? &found->second : nullptr;
}

absl::Status BackupFolder::DiscardImages(const std::function<bool(const std::string&)>& is_kept) {
  ASSIGN_OR_RETURN(std::set<std::string> names, ListBackupImages(folder_));
  for (const auto& [name, file] : manifest_.files) names.insert(name);
  for (const std::string& name : names)
    if (name != kCatalogueFile && !is_kept(name)) RETURN_IF_ERROR(Discard(name));
  return absl::OkStatus();
}

absl::Status BackupFolder::Discard(const std::string& name) {
  if (manifest_.files.contains(name)) {
    RETURN_IF_ERROR(AppendGone(file_, name));
    FAIL_POINT("array.backup.gone_listed");
    manifest_.files.erase(name);
  }
  const std::string path = PathOf(name);
  return ::unlink(path.c_str()) == 0 || errno == ENOENT ? absl::OkStatus()
                                                        : FolderError("remove", path, errno);
}

absl::Status BackupFolder::DropFromCache(int fd, const std::string& path) const {
  if (::fsync(fd) != 0) return FolderError("sync", path, errno);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  return absl::OkStatus();
}

absl::Status BackupFolder::CopyIn(const std::string& name, const HeldImage& image,
                                  const std::function<absl::Status(uint64_t)>& watch) {
  RETURN_IF_ERROR(Discard(name));
  const std::string to = PathOf(name);
  const UniqueFd out(::open(to.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!out) return FolderError("make", to, errno);
  ImageDigest digest;
  uint64_t unsynced = 0;
  const auto copy = [&](uint64_t at, std::string_view block) -> absl::Status {
    digest.AddBlock(at, block);
    const ssize_t written = ::pwrite(out.get(), block.data(), block.size(), static_cast<off_t>(at));
    if (written != static_cast<ssize_t>(block.size()))
      return FolderError("write", to, written < 0 ? errno : ENOSPC);
    unsynced += block.size();
    if (unsynced >= kMostUnsynced) RETURN_IF_ERROR(DropFromCache(out.get(), to));
    unsynced %= kMostUnsynced;
    return watch(block.size());
  };
  RETURN_IF_ERROR(ForEachBlock(image.fd.get(), name, copy));
  RETURN_IF_ERROR(watch(0));
  if (::ftruncate(out.get(), static_cast<off_t>(image.size_bytes)) != 0)
    return FolderError("size", to, errno);
  RETURN_IF_ERROR(DropFromCache(out.get(), to));
  RETURN_IF_ERROR(SyncDirectoryOf(to));
  FAIL_POINT("array.backup.image_written");
  const BackedUpFile file{.size_bytes = image.size_bytes, .digest = digest.text(), .version = image.version};
  RETURN_IF_ERROR(AppendBackedUpFile(file_, name, file));
  FAIL_POINT("array.backup.image_listed");
  manifest_.files[name] = file;
  return absl::OkStatus();
}

absl::Status BackupFolder::Finish() {
  const std::string path = PathOf(kCatalogueFile);
  ASSIGN_OR_RETURN(const UniqueFd catalogue, OpenFile(path, O_RDONLY));
  struct stat file {};
  if (::fstat(catalogue.get(), &file) != 0) return FolderError("look at", path, errno);
  if (::fsync(catalogue.get()) != 0) return FolderError("sync", path, errno);
  ASSIGN_OR_RETURN(const std::string digest,
                   DigestFile(catalogue.get(), path, [](uint64_t) { return true; }));
  // Also what was removed: a file that came back after a power cut would be found as a stranger.
  for (const char* images : kImageFolders)
    RETURN_IF_ERROR(SyncDirectoryOf(absl::StrCat(PathOf(images), "/.")));
  RETURN_IF_ERROR(SyncDirectoryOf(path));
  RETURN_IF_ERROR(AppendBackedUpFile(file_, kCatalogueFile,
                                     {.size_bytes = static_cast<uint64_t>(file.st_size), .digest = digest}));
  FAIL_POINT("array.backup.catalogue_listed");
  return AppendWhole(file_);
}

absl::Status BackupFolder::FolderError(const char* doing, const std::string& path, int error) const {
  const std::string message = absl::StrCat(what_, doing, " ", path, ": ", std::strerror(error));
  if (!IsNoSpace(error)) return absl::InternalError(message);
  return absl::ResourceExhaustedError(
      absl::StrCat(message, "; make room there, and repeat the command: it goes on"));
}

absl::StatusOr<std::set<std::string>> ListBackupImages(const std::string& folder) {
  std::set<std::string> names;
  for (const char* images : kImageFolders) {
    const std::string path = absl::StrCat(folder, "/", images);
    std::error_code error;
    for (std::filesystem::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
      names.insert(absl::StrCat(images, "/", at->path().filename().string()));
    if (error && error != std::errc::no_such_file_or_directory) return FileError("list", path, error.value());
  }
  return names;
}

}  // namespace lunkeeper
