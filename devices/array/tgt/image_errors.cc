#include "devices/array/tgt/image_errors.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

// Of a range behind any file's end: there is nothing to wait for, and it fails all the same.
int LookForError(int fd) { return ::sync_file_range(fd, off64_t{1} << 62, 1, SYNC_FILE_RANGE_WAIT_BEFORE); }

}  // namespace

ImageErrors::ImageErrors(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!file_ && errno != ENOENT)
    LogWarn("array", "an image is not watched for errors of its disk",
            {{"file", path_}, {"error", std::strerror(errno)}});
}

absl::StatusOr<std::string> ImageErrors::ReadCacheId() const {
  if (file_) SyncImageFile(file_.get(), path_, LookForError).IgnoreError();
  return ReadCacheIdOf(path_);
}

}  // namespace lunkeeper
