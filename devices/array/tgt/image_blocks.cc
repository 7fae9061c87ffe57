// A block begins at a multiple of its size, wherever the data begin: a digest must not depend on where a
// program that copied the file has left holes.
#include "devices/array/tgt/image_blocks.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

#include "base/status_macros.h"
#include "base/units.h"
#include "devices/array/tgt/backup_manifest.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

constexpr size_t kBlock = kMiB / 16;

// Less than a block only at the file's end: a bad sector behind good ones ends a read early too, and the next
// read then has the error.
absl::StatusOr<size_t> ReadBlock(int fd, const std::string& path, off_t offset, std::string* block) {
  size_t done = 0;
  while (done < block->size()) {
    const ssize_t size =
        ::pread(fd, block->data() + done, block->size() - done, offset + static_cast<off_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return FileError("read", path, errno);
    if (size == 0) break;
    done += static_cast<size_t>(size);
  }
  return done;
}

}  // namespace

absl::Status ForEachBlock(int fd, const std::string& path,
                          const std::function<absl::Status(uint64_t offset, std::string_view block)>& each) {
  std::string block(kBlock, '\0');
  off_t offset = 0;
  while ((offset = ::lseek(fd, offset, SEEK_DATA)) >= 0) {
    offset -= offset % static_cast<off_t>(kBlock);
    ASSIGN_OR_RETURN(const size_t size, ReadBlock(fd, path, offset, &block));
    if (size == 0) break;
    const std::string_view read(block.data(), size);
    if (read.find_first_not_of('\0') != std::string_view::npos)
      RETURN_IF_ERROR(each(static_cast<uint64_t>(offset), read));
    // Read once: nobody else is to lose the page cache for it.
    ::posix_fadvise(fd, offset, static_cast<off_t>(size), POSIX_FADV_DONTNEED);
    offset += static_cast<off_t>(size);
  }
  return offset >= 0 || errno == ENXIO ? absl::OkStatus() : FileError("find data of", path, errno);
}

absl::StatusOr<std::string> DigestFile(int fd, const std::string& path,
                                       const std::function<bool(uint64_t bytes)>& watch) {
  ImageDigest digest;
  RETURN_IF_ERROR(ForEachBlock(fd, path, [&](uint64_t at, std::string_view block) {
    digest.AddBlock(at, block);
    return watch(block.size()) ? absl::OkStatus() : absl::CancelledError("backup: nobody waits for it now");
  }));
  return digest.text();
}

}  // namespace lunkeeper
