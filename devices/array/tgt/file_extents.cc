#include "devices/array/tgt/file_extents.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/status_macros.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

constexpr uint32_t kAtOnce = 4096;
// Flags that change nothing of what is said of the place.
constexpr uint32_t kHarmless = FIEMAP_EXTENT_LAST | FIEMAP_EXTENT_MERGED | FIEMAP_EXTENT_SHARED;
constexpr uint64_t kHole = ~uint64_t{0};

// Finds the extent at a position, in a list in order.
class Walk {
 public:
  explicit Walk(const std::vector<FileExtent>& extents) : at_(extents.begin()), end_(extents.end()) {}
  // `offset` rises from call to call. Null: a hole.
  const FileExtent* Find(uint64_t offset) {
    while (at_ != end_ && at_->offset + at_->length <= offset) ++at_;
    return at_ != end_ && at_->offset <= offset ? &*at_ : nullptr;
  }

 private:
  std::vector<FileExtent>::const_iterator at_, end_;
};

bool IsSame(const FileExtent* a, const FileExtent* b, uint64_t offset) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->known && b->known && a->place + (offset - a->offset) == b->place + (offset - b->offset);
}

}  // namespace

bool HasStableExtents(int fd) {
  struct statfs system {};
  return ::fstatfs(fd, &system) == 0 && system.f_type == XFS_SUPER_MAGIC;
}

absl::StatusOr<std::vector<FileExtent>> ReadExtents(int fd, const std::string& path) {
  std::vector<FileExtent> extents;
  std::vector<uint64_t> space((sizeof(fiemap) + kAtOnce * sizeof(fiemap_extent)) / sizeof(uint64_t));
  auto* const map = reinterpret_cast<fiemap*>(space.data());
  bool last = false;
  for (uint64_t from = 0; !last;) {
    std::memset(map, 0, sizeof(*map));
    map->fm_start = from;
    map->fm_length = kHole - from;
    map->fm_flags = FIEMAP_FLAG_SYNC;
    map->fm_extent_count = kAtOnce;
    if (::ioctl(fd, FS_IOC_FIEMAP, map) != 0) return FileError("find the extents of", path, errno);
    for (uint32_t i = 0; i < map->fm_mapped_extents; ++i) {
      const fiemap_extent& found = map->fm_extents[i];
      extents.push_back({.offset = found.fe_logical,
                         .length = found.fe_length,
                         .place = found.fe_physical,
                         .known = (found.fe_flags & ~kHarmless) == 0});
      last = (found.fe_flags & FIEMAP_EXTENT_LAST) != 0;
    }
    if (map->fm_mapped_extents == 0) break;
    from = extents.back().offset + extents.back().length;
  }
  return extents;
}

std::vector<FileRange> FindDifferences(const std::vector<FileExtent>& a, const std::vector<FileExtent>& b,
                                       uint64_t size) {
  std::vector<uint64_t> edges = {0, size};
  for (const auto* extents : {&a, &b}) {
    for (const FileExtent& extent : *extents) {
      edges.push_back(std::min(extent.offset, size));
      edges.push_back(std::min(extent.offset + extent.length, size));
    }
  }
  std::ranges::sort(edges);
  std::vector<FileRange> ranges;
  Walk in_a(a), in_b(b);
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    const uint64_t offset = edges[i], end = edges[i + 1];
    if (offset == end || IsSame(in_a.Find(offset), in_b.Find(offset), offset)) continue;
    if (!ranges.empty() && ranges.back().end == offset) {
      ranges.back().end = end;
    } else {
      ranges.push_back({offset, end});
    }
  }
  return ranges;
}

}  // namespace lunkeeper
