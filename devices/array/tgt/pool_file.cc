// What is shared is copied in pieces, and only while there is room for all that is still shared: until then
// each write to the other image needs new space, also of a thick volume, and thin ones take space meanwhile.
#include "devices/array/tgt/pool_file.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "devices/array/full_pool.h"

namespace lunkeeper {
namespace {

// Of an image's file, so that it lasts as long.
constexpr char kCacheIdAttribute[] = "user.lunkeeper.cache_id";
// Between two looks at what room is left.
constexpr off_t kUnshareAtOnce = kFullPoolBytes / 4;

absl::Status CheckRoomFor(uint64_t shared, int fd, const std::string& path) {
  struct statvfs pool {};
  if (::fstatvfs(fd, &pool) != 0) return FileError("measure the pool of", path, errno);
  const uint64_t free = pool.f_bavail * pool.f_frsize;
  if (free >= shared + kFullPoolBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "pool: copy shared data of ", path, ": ", free, " bytes are left, and ", shared,
      " are still to be copied: thin volumes have grown meanwhile; delete some, or grow the pool"));
}

}  // namespace

bool IsNoSpace(int error) { return error == ENOSPC || error == EDQUOT; }

absl::Status FileError(const char* doing, const std::string& path, int error) {
  const std::string message = absl::StrCat("pool: ", doing, " ", path, ": ", std::strerror(error));
  if (IsNoSpace(error)) {
    return absl::ResourceExhaustedError(absl::StrCat(message, "; free some space or grow the pool"));
  }
  return error == ENOENT ? absl::NotFoundError(message) : absl::InternalError(message);
}

absl::StatusOr<UniqueFd> OpenFile(const std::string& path, int flags) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (!fd) return FileError("open", path, errno);
  return fd;
}

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return FileError("make directory", path, error.value());
  if (::chmod(path.c_str(), 0700) != 0) return FileError("protect", path, errno);
  return absl::OkStatus();
}

// A file's own fsync does not make its name durable (fsync(2)).
absl::Status SyncDirectoryOf(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path();
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(directory, O_RDONLY | O_DIRECTORY));
  if (::fsync(fd.get()) != 0) return FileError("sync", directory, errno);
  return absl::OkStatus();
}

absl::Status SyncImageFile(int fd, const std::string& path, int (*sync)(int)) {
  if (sync(fd) == 0) return absl::OkStatus();
  const absl::Status failed = FileError("sync", path, errno);
  const std::string id = RandomHexDigits();
  if (::fsetxattr(fd, kCacheIdAttribute, id.data(), id.size(), 0) == 0) return failed;
  LogError("array",
           "the disk has failed to take writes, and the image cannot note it: its node may not learn that "
           "they are lost; restart the volume's pods",
           {{"file", path}, {"error", std::strerror(errno)}});
  return failed;
}

absl::StatusOr<std::string> ReadCacheIdOf(const std::string& path) {
  std::string id(16, '\0');
  const ssize_t size = ::getxattr(path.c_str(), kCacheIdAttribute, id.data(), id.size());
  if (size < 0 && errno != ENODATA && errno != EOPNOTSUPP && errno != ENOENT)
    return FileError("read the cache id of", path, errno);
  id.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return id;
}

// Under a name that the next start deletes, until the catalogue has the row: the caller renames it then.
absl::Status WriteNewFile(const std::string& final_path, const std::function<absl::Status(int)>& fill) {
  const std::string path = final_path + kNewSuffix;
  absl::Status status;
  {
    ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW));
    status = fill(fd.get());
    if (status.ok() && ::fsync(fd.get()) != 0) status = FileError("sync", path, errno);
  }
  if (status.ok()) status = SyncDirectoryOf(path);
  if (!status.ok()) ::unlink(path.c_str());
  FAIL_POINT("array.pool.file_made");
  return status;
}

// What is before `allocated` has its space already. XFS wants room for all of the range that it is asked for,
// also where that has blocks.
absl::Status SetSize(int fd, const std::string& path, uint64_t size_bytes, Provisioning provisioning,
                     off_t allocated) {
  const auto size = static_cast<off_t>(size_bytes);
  if (provisioning == Provisioning::kThick && allocated < size &&
      ::fallocate(fd, 0, allocated, size - allocated) != 0)
    return FileError("allocate", path, errno);
  if (::ftruncate(fd, size) != 0) return FileError("size", path, errno);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> MeasureFile(int fd, const std::string& path) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return FileError("look at", path, errno);
  return static_cast<uint64_t>(file.st_blocks) * 512;
}

// Of what is written only: for the rest the call would allocate space, also in a thin file.
absl::Status UnshareData(int fd, const std::string& path, uint64_t shared) {
  off_t offset = 0;
  while ((offset = ::lseek(fd, offset, SEEK_DATA)) >= 0) {
    const off_t end = std::min<off_t>(::lseek(fd, offset, SEEK_HOLE), offset + kUnshareAtOnce);
    if (end < offset) return FileError("find data of", path, errno);
    FAIL_POINT("array.unshare.piece");
    RETURN_IF_ERROR(CheckRoomFor(shared, fd, path));
    if (::fallocate(fd, FALLOC_FL_UNSHARE_RANGE, offset, end - offset) == 0) {
      shared -= std::min<uint64_t>(shared, static_cast<uint64_t>(end - offset));
      offset = end;
    } else if (errno == EOPNOTSUPP) {
      return absl::FailedPreconditionError(
          absl::StrCat("pool: ", path,
                       ": this file system cannot copy the data of a thick volume; use "
                       "provisioning: thin, or a pool on XFS"));
    } else if (errno != EINTR) {
      return FileError("copy shared data of", path, errno);
    }
  }
  return errno == ENXIO ? absl::OkStatus() : FileError("find data of", path, errno);
}

}  // namespace lunkeeper
