// Every write of a file sets its ctime, which nobody can set otherwise. It is set before the data are there,
// both under the inode's lock, and the reflink takes that lock: so a write whose ctime was seen is in what is
// held. A write that came later is in it or not, and has another ctime.
#include "devices/array/tgt/held_image.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

// The clock of ctimes. It is read before the file's: a later write then has a later ctime than one that is
// older than this clock, however coarse it is.
absl::Time CtimeClock() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return absl::TimeFromTimespec(now);
}

absl::StatusOr<ImageState> LookAtFile(int fd, const std::string& path, const std::string& cache_id) {
  const absl::Time now = CtimeClock();
  struct stat file {};
  if (::fstat(fd, &file) != 0) return FileError("look at", path, errno);
  ImageState state{.size_bytes = static_cast<uint64_t>(file.st_size)};
  const absl::Time changed = absl::TimeFromTimespec(file.st_ctim);
  if (changed < now)
    state.version = absl::StrCat(cache_id, ":", file.st_ino, ":", absl::ToUnixNanos(changed));
  return state;
}

absl::StatusOr<HeldImage> HoldFile(const std::string& path, const std::string& cache_id) {
  ASSIGN_OR_RETURN(const UniqueFd source, OpenFile(path, O_RDONLY));
  const std::string directory = std::filesystem::path(path).parent_path();
  HeldImage held;
  ASSIGN_OR_RETURN(held.fd, OpenFile(directory, O_TMPFILE | O_RDWR));
  // Most of what is dirty is written here, where nobody waits, as in Pool::CloneImage.
  RETURN_IF_ERROR(SyncImageFile(source.get(), path, ::fdatasync));
  // Before the reflink, which waits for writes under way: each of them is held, or is newer than the version.
  ASSIGN_OR_RETURN(const ImageState state, LookAtFile(source.get(), path, cache_id));
  if (::ioctl(held.fd.get(), FICLONE, source.get()) != 0) return FileError("hold", path, errno);
  struct stat file {};
  if (::fstat(held.fd.get(), &file) != 0) return FileError("look at", path, errno);
  held.size_bytes = static_cast<uint64_t>(file.st_size);
  held.version = state.version;
  return held;
}

}  // namespace

absl::StatusOr<ImageState> LookAtImage(const std::string& path, const std::string& cache_id) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY));
  return LookAtFile(fd.get(), path, cache_id);
}

// The own name again at the end: the file may have got it between two looks.
absl::StatusOr<HeldImage> HoldImage(const std::string& path, const std::string& cache_id, bool made) {
  absl::StatusOr<HeldImage> held = absl::NotFoundError(path);
  for (const std::string suffix : {"", kNewSuffix, kGoneSuffix, ""}) {
    if (suffix == kNewSuffix && !made) continue;
    held = HoldFile(path + suffix, cache_id);
    if (!absl::IsNotFound(held.status())) break;
  }
  return held;
}

}  // namespace lunkeeper
