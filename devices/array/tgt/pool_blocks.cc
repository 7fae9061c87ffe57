// Data: SEEK_DATA and SEEK_HOLE, which every file system has.
//
// Changes: the extents of both files (FIEMAP), piece by piece. A piece is the same in both only if both have
// one block there, shared, or both read as zero. All else is a change. So what the file system has moved or
// copied is listed without need, and nothing is left out. Piece by piece also bounds the memory: a volume
// can have millions of extents.
#include "devices/array/tgt/pool_blocks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/status_macros.h"
#include "devices/array/tgt/file_extents.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

// Of extents (ReadSomeExtents) in a call: some 100,000, in which nothing may have changed.
constexpr int kMostPieces = 64;
// Of a file system.
constexpr uint64_t kSmallestBlock = 512;

// False: the page is full, and goes on behind.
bool AddRange(const BlockRange& range, size_t limit, BlockPage* page) {
  auto& ranges = page->ranges;
  if (!ranges.empty() && ranges.back().offset + ranges.back().length == range.offset) {
    ranges.back().length += range.length;
    return true;
  }
  if (ranges.size() == limit) return false;
  ranges.push_back(range);
  return true;
}

}  // namespace

absl::StatusOr<BlockPage> FindData(const PoolImage& image, uint64_t offset, size_t limit) {
  ASSIGN_OR_RETURN(const UniqueFd file, OpenFile(image.path, O_RDONLY));
  BlockPage page{.ranges = {}, .size_bytes = image.size_bytes, .next_offset = offset};
  while (page.ranges.size() < limit && page.next_offset < image.size_bytes) {
    const off_t data = ::lseek(file.get(), static_cast<off_t>(page.next_offset), SEEK_DATA);
    if (data < 0 && errno != ENXIO) return FileError("find data of", image.path, errno);
    if (data < 0 || static_cast<uint64_t>(data) >= image.size_bytes) {
      page.next_offset = image.size_bytes;  // ENXIO: there is no more
      break;
    }
    const off_t hole = ::lseek(file.get(), data, SEEK_HOLE);
    if (hole < 0) return FileError("find data of", image.path, errno);
    const auto begin = static_cast<uint64_t>(data);
    if (hole == data) {  // zeroes that were cached, and are dropped by now: no data begin there
      page.next_offset = (begin / kSmallestBlock + 1) * kSmallestBlock;
      continue;
    }
    page.next_offset = std::min(static_cast<uint64_t>(hole), image.size_bytes);
    page.ranges.push_back({begin, page.next_offset - begin});
  }
  return page;
}

absl::StatusOr<BlockPage> FindChanges(const PoolImage& base, const PoolImage& image, uint64_t offset,
                                      size_t limit) {
  ASSIGN_OR_RETURN(const UniqueFd old_file, OpenFile(base.path, O_RDONLY));
  ASSIGN_OR_RETURN(const UniqueFd file, OpenFile(image.path, O_RDONLY));
  if (!HasStableExtents(file.get())) return ChangesAreUnknown();
  BlockPage page{.ranges = {}, .size_bytes = image.size_bytes, .next_offset = offset};
  for (int i = 0; i < kMostPieces && page.next_offset < image.size_bytes; ++i) {
    const uint64_t from = page.next_offset;
    ASSIGN_OR_RETURN(const SomeExtents before,
                     ReadSomeExtents(old_file.get(), base.path, {from, base.size_bytes}));
    ASSIGN_OR_RETURN(const SomeExtents after,
                     ReadSomeExtents(file.get(), image.path, {from, image.size_bytes}));
    const uint64_t end = std::min({before.end, after.end, image.size_bytes});
    for (const FileRange& range : FindChanges(before.extents, after.extents, {from, end})) {
      page.next_offset = range.offset;
      if (!AddRange({range.offset, range.end - range.offset}, limit, &page)) return page;
    }
    page.next_offset = end;
  }
  return page;
}

absl::Status ChangesAreUnknown() {
  return absl::FailedPreconditionError(
      "pool: what changed between two snapshots is known only on XFS with reflinks: back the whole snapshot "
      "up, or move the pool to XFS");
}

}  // namespace lunkeeper
