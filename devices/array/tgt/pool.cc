// The pool's directory:
//
//   lock            flock'ed while a program has the pool open (pool_lock.h)
//   tgtd.lock       flock'ed while a tgtd serves the pool (TgtdLock); tgtd-1.lock and so on: a further one
//   catalogue.db    SQLite's, with -wal and -shm beside it
//   cache_id        what initiators know the page cache by; cache_id.flushed: all of it is here (cache_id.h)
//   volumes/ID      one sparse or allocated file per volume; tgtd opens it as the LUN's backing store
//   snapshots/ID    one file per snapshot, a reflink of its volume where the file system can
//   heartbeat_luns/GENERATION   (HeartbeatLunFiles)
//   orphans/        files found at a start that the catalogue does not know, for an operator to look at
//
// Each call that makes a file syncs the file and then its directory, in this order: after a power cut there
// is either the whole file or none that its row could point to.
#include "devices/array/tgt/pool.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "devices/array/full_pool.h"
#include "devices/array/tgt/image_errors.h"
#include "devices/array/tgt/pool_blocks.h"
#include "devices/array/tgt/pool_clones.h"
#include "devices/array/tgt/pool_file.h"
#include "devices/array/tgt/pool_lock.h"

namespace lunkeeper {
namespace {

constexpr uint64_t kLargestVolume = (16ull << 40) - kMiB;  // the largest file of an ext4 with 4 KiB blocks
// Between two looks at whether to give up, and at what room is left, which nodes write to meanwhile.
constexpr size_t kCopyChunk = kFullPoolBytes / 4;

uint64_t TakenBytes(const struct stat& file) { return static_cast<uint64_t>(file.st_blocks) * 512; }

bool FileExists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// OK when there is none.
absl::Status UnlinkFile(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return FileError("remove", path, errno);
  return absl::OkStatus();
}

absl::Status CopyRange(int from, int to, off_t offset, off_t end, const std::string& path) {
  while (offset < end) {
    off_t in = offset;
    off_t out = offset;
    const ssize_t copied = ::copy_file_range(from, &in, to, &out, static_cast<size_t>(end - offset), 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0) return FileError("copy to", path, errno);
    if (copied == 0) break;
    offset += copied;
  }
  return absl::OkStatus();
}

absl::Status CopyData(int from, int to, const std::string& path,
                      const std::function<bool(uint64_t)>& progress) {
  // Only what is allocated: a hole of the source stays a hole. SEEK_DATA fails with ENXIO behind the last
  // data.
  off_t offset = 0;
  while ((offset = ::lseek(from, offset, SEEK_DATA)) >= 0) {
    const off_t end = std::min<off_t>(::lseek(from, offset, SEEK_HOLE), offset + kCopyChunk);
    if (end < offset) return FileError("find data of", path, errno);
    RETURN_IF_ERROR(CopyRange(from, to, offset, end, path));
    FAIL_POINT("array.copy.chunk");
    if (!progress(static_cast<uint64_t>(end))) return absl::CancelledError(absl::StrCat("copy to ", path));
    offset = end;
  }
  return errno == ENXIO ? absl::OkStatus() : FileError("find data of", path, errno);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pool>> Pool::Open(const std::string& directory) {
  if (!absl::StartsWith(directory, "/") || absl::StrContains(directory, ",")) {
    return absl::FailedPreconditionError(
        absl::StrCat("open pool ", directory, ": it must be an absolute path without a comma"));
  }
  RETURN_IF_ERROR(MakeDirectory(directory));
  RETURN_IF_ERROR(MakeDirectory(directory + "/volumes"));
  RETURN_IF_ERROR(MakeDirectory(directory + "/snapshots"));
  RETURN_IF_ERROR(MakeDirectory(directory + "/heartbeat_luns"));
  RETURN_IF_ERROR(MakeDirectory(directory + "/orphans"));  // now: a full pool has no room for it
  ASSIGN_OR_RETURN(UniqueFd lock, LockPool(directory));
  std::unique_ptr<Pool> pool(new Pool(directory, std::move(lock)));
  ASSIGN_OR_RETURN(pool->reflinks_, pool->TryReflink());
  pool->ballast_.ReserveSpace();
  return pool;
}

std::string Pool::VolumePath(const VolumeId& id) const {
  return absl::StrCat(directory_, "/volumes/", id.value());
}
std::string Pool::SnapshotPath(const VolumeId&, const SnapshotId& id) const {
  return absl::StrCat(directory_, "/snapshots/", id.value());
}
std::string Pool::CataloguePath() const { return directory_ + "/catalogue.db"; }
absl::StatusOr<LunBacking> Pool::BackingOf(const std::string& path) const {
  return LunBacking{.path = path, .errors = WatchErrors(path)};
}
std::shared_ptr<const ImageErrors> Pool::FindWatch(const std::string& path) const {
  const auto found = watches_.find(path);
  return found == watches_.end() ? nullptr : found->second.lock();
}
// Opened outside the lock: a disk that hangs keeps one image's caller.
std::shared_ptr<const ImageErrors> Pool::WatchErrors(const std::string& path) const {
  {
    const absl::MutexLock lock(&watches_mu_);
    if (auto watch = FindWatch(path)) return watch;
  }
  auto made = std::make_shared<const ImageErrors>(path);
  const absl::MutexLock lock(&watches_mu_);
  if (auto watch = FindWatch(path)) return watch;
  std::erase_if(watches_, [](const auto& entry) { return entry.second.expired(); });
  if (made->is_watching()) watches_[path] = made;
  return made;
}
absl::StatusOr<bool> Pool::TryReflink() const {
  // Tried, not read from the file system's name: XFS can be made without reflinks, and others may learn them.
  // Between two empty files that are always there: a full pool has no room for others.
  ASSIGN_OR_RETURN(const UniqueFd to, OpenFile(directory_ + "/tgtd.lock", O_RDWR | O_CREAT));
  return ::ioctl(to.get(), FICLONE, lock_.get()) == 0;
}

absl::Status Pool::CreateImage(const std::string& path, uint64_t size_bytes,
                               Provisioning provisioning) const {
  return WriteNewFile(path, [&](int fd) { return SetSize(fd, path, size_bytes, provisioning); });
}

absl::Status Pool::CloneImage(const std::string& from, const std::string& to, uint64_t size_bytes,
                              Provisioning provisioning, bool own_space) const {
  ASSIGN_OR_RETURN(const UniqueFd source, OpenFile(from, O_RDONLY));
  // FICLONE writes what is dirty while it holds the inode, and all I/O of the volume, and so its drain,
  // waits. Most of it is written here, where nobody waits.
  RETURN_IF_ERROR(SyncImageFile(source.get(), from, ::fdatasync));
  return WriteNewFile(to, [&](int fd) -> absl::Status {
    if (::ioctl(fd, FICLONE, source.get()) != 0) return FileError("clone to", to, errno);
    ASSIGN_OR_RETURN(const uint64_t shared, MeasureFile(fd, to));
    RETURN_IF_ERROR(SetSize(fd, to, size_bytes, provisioning));
    return own_space ? UnshareData(fd, to, shared) : absl::OkStatus();
  });
}

absl::Status Pool::CopyImage(const std::string& from, const std::string& to, uint64_t size_bytes,
                             Provisioning provisioning, const std::function<bool(uint64_t)>& progress) const {
  ASSIGN_OR_RETURN(const UniqueFd source, OpenFile(from, O_RDONLY));
  return WriteNewFile(to, [&](int fd) -> absl::Status {
    RETURN_IF_ERROR(SetSize(fd, to, size_bytes, provisioning));
    return CopyData(source.get(), fd, to, progress);
  });
}

absl::Status Pool::GrowImage(const std::string& path, uint64_t size_bytes, Provisioning provisioning) const {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDWR));
  struct stat file {};
  if (::fstat(fd.get(), &file) != 0) return FileError("look at", path, errno);
  // A repeated call after a later, larger growth must not shrink the file.
  if (static_cast<uint64_t>(file.st_size) > size_bytes) return absl::OkStatus();
  const bool whole = TakenBytes(file) >= static_cast<uint64_t>(file.st_size);
  const absl::Status sized = SetSize(fd.get(), path, size_bytes, provisioning, whole ? file.st_size : 0);
  if (!sized.ok()) {
    // A thick volume that did not fit: fallocate may have extended the file before it ran out of space.
    [[maybe_unused]] const int undone = ::ftruncate(fd.get(), file.st_size);
    return sized;
  }
  return SyncImageFile(fd.get(), path, ::fsync);
}

absl::Status Pool::SyncImage(const std::string& path) const {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDWR));
  return SyncImageFile(fd.get(), path, ::fsync);
}

absl::StatusOr<uint64_t> Pool::ReadSize(const std::string& path) const {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return FileError("look at", path, errno);
  return static_cast<uint64_t>(file.st_size);
}

absl::StatusOr<uint64_t> Pool::MeasureImage(const std::string& path) const {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return FileError("look at", path, errno);
  return TakenBytes(file);
}

// Over no other file: what that holds may be the only copy of somebody's data. A longer name may need another
// block of the directory, and a deletion begins with one.
absl::Status Pool::RenameFile(const std::string& from, const std::string& to) const {
  const auto rename = [&] {
    return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0;
  };
  if (rename() || (IsNoSpace(errno) && ballast_.ReleaseSpace() && rename())) return absl::OkStatus();
  return FileError("rename", from, errno);
}

// The new name needs no sync: after a power cut the file has either name, and TidyImages finds its row.
absl::Status Pool::KeepImage(const std::string& path) const {
  if (FileExists(path)) return absl::OkStatus();
  const absl::Status renamed = RenameFile(path + kNewSuffix, path);
  // Two calls may keep one file.
  return FileExists(path) ? absl::OkStatus() : renamed;
}

void Pool::DropNewImage(const std::string& path) const { UnlinkFile(path + kNewSuffix).IgnoreError(); }

absl::Status Pool::MarkDeleted(const std::string& path) const {
  absl::Status renamed = RenameFile(path, path + kGoneSuffix);
  if (absl::IsNotFound(renamed)) renamed = RenameFile(path + kNewSuffix, path + kGoneSuffix);
  if (absl::IsNotFound(renamed)) return absl::OkStatus();
  RETURN_IF_ERROR(renamed);
  // Or a power cut could leave the row deleted and the file with its name.
  return SyncDirectoryOf(path);
}

absl::Status Pool::UnmarkDeleted(const std::string& path) const {
  const absl::Status renamed = RenameFile(path + kGoneSuffix, path);
  return absl::IsNotFound(renamed) ? absl::OkStatus() : renamed;
}

// Not synced: a file that comes back after a power cut is without a row, and TidyImages deletes it.
absl::Status Pool::RemoveMarked(const std::string& path) const { return UnlinkFile(path + kGoneSuffix); }

absl::StatusOr<std::vector<std::string>> Pool::ListFiles() const {
  std::vector<std::string> files;
  for (const char* kind : {"/volumes", "/snapshots"}) {
    std::error_code error;
    for (std::filesystem::directory_iterator at(directory_ + kind, error), end; !error && at != end;
         at.increment(error)) {
      files.push_back(at->path());
    }
    if (error) return FileError("list", directory_ + kind, error.value());
  }
  return files;
}

absl::Status Pool::TidyImages(const std::set<std::string>& known, const std::string& prefix) const {
  for (const std::string& path : known) {
    if (FileExists(path)) continue;
    RETURN_IF_ERROR(FileExists(path + kGoneSuffix) ? UnmarkDeleted(path) : absl::OkStatus());
    RETURN_IF_ERROR(FileExists(path + kNewSuffix) ? KeepImage(path) : absl::OkStatus());
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> files, ListFiles());
  for (const std::string& file : files) {
    if (known.count(file) != 0) continue;
    const bool ours = absl::StartsWith(std::filesystem::path(file).filename().string(), prefix);
    absl::string_view image = file;
    const bool unnamed = absl::ConsumeSuffix(&image, kNewSuffix) || absl::ConsumeSuffix(&image, kGoneSuffix);
    // Beside a row's own file no call leaves one: that is somebody's copy.
    if (ours && unnamed && known.count(std::string(image)) == 0) {
      LogInfo("array", "removing a left-over file", {{"file", file}});
      RETURN_IF_ERROR(UnlinkFile(file));
      continue;
    }
    LogWarn("array", "setting a file aside that the catalogue does not know", {{"file", file}});
    // Where it is it does no harm either: no id is given out twice.
    const absl::Status aside = SetAside(file);
    if (!aside.ok()) LogError("array", std::string(aside.message()));
  }
  return absl::OkStatus();
}

// The same file may have been set aside before, and copied back.
absl::Status Pool::SetAside(const std::string& path) const {
  const std::string first =
      absl::StrCat(directory_, "/orphans/", std::filesystem::path(path).filename().string());
  std::string to = first;
  for (int i = 1; FileExists(to); ++i) to = absl::StrCat(first, ".", i);
  RETURN_IF_ERROR(RenameFile(path, to));
  return SyncDirectoryOf(to);
}

absl::StatusOr<std::vector<OrphanFile>> Pool::ListOrphans() const {
  std::vector<OrphanFile> orphans;
  const std::string folder = directory_ + "/orphans";
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    struct stat file {};
    if (::lstat(at->path().c_str(), &file) != 0) continue;  // deleted meanwhile
    orphans.push_back({.name = at->path().filename(),
                       .taken_bytes = TakenBytes(file),
                       .changed = absl::TimeFromTimespec(file.st_mtim)});
  }
  if (error) return FileError("list", folder, error.value());
  std::sort(orphans.begin(), orphans.end(),
            [](const OrphanFile& a, const OrphanFile& b) { return a.name < b.name; });
  return orphans;
}

absl::Status Pool::DeleteOrphan(const std::string& name) const {
  if (name.empty() || name == "." || name == ".." || absl::StrContains(name, "/"))
    return absl::InvalidArgumentError(absl::StrCat("orphaned file '", name, "': want a name, as listed"));
  const std::string path = absl::StrCat(directory_, "/orphans/", name);
  if (::unlink(path.c_str()) != 0) return FileError("remove", path, errno);
  LogWarn("array", "an orphaned file is deleted, as an operator asked", {{"file", path}});
  return SyncDirectoryOf(path);
}

absl::StatusOr<std::unique_ptr<PoolClones>> Pool::MakeClones(std::vector<PoolClone> clones) const {
  return PoolClones::MakeFiles(*this, std::move(clones));
}

absl::StatusOr<BlockPage> Pool::FindData(const PoolImage& image, uint64_t offset, size_t limit) const {
  return lunkeeper::FindData(image, offset, limit);
}

// Without reflinks each snapshot is a copy: where it is on the disk tells nothing of another one.
absl::StatusOr<BlockPage> Pool::FindChanges(const PoolImage& base, const PoolImage& image, uint64_t offset,
                                            size_t limit) const {
  if (!reflinks_) return ChangesAreUnknown();
  return lunkeeper::FindChanges(base, image, offset, limit);
}

absl::StatusOr<PoolCapacity> Pool::MeasureCapacity() const {
  struct statvfs file_system {};
  if (::statvfs(directory_.c_str(), &file_system) != 0) return FileError("measure", directory_, errno);
  return PoolCapacity{.total_bytes = file_system.f_blocks * file_system.f_frsize,
                      .available_bytes = file_system.f_bavail * file_system.f_frsize,
                      .smallest_volume_bytes = kMiB,
                      .largest_volume_bytes = kLargestVolume};
}

}  // namespace lunkeeper
