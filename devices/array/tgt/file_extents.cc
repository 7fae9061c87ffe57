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

// The file's writers wait while its extents are read, some 3 µs each.
constexpr uint32_t kExtentsAtOnce = 1024;
// Flags that change nothing of what is said of the place.
constexpr uint32_t kHarmless = FIEMAP_EXTENT_LAST | FIEMAP_EXTENT_MERGED | FIEMAP_EXTENT_SHARED;
constexpr uint64_t kHole = ~uint64_t{0};  // behind the last extent

// Finds the extent at a position, in a list in order.
class Walk {
 public:
  explicit Walk(const std::vector<FileExtent>& extents) : at_(extents.begin()), end_(extents.end()) {}
  // `offset` rises from call to call. Null: a hole.
  const FileExtent* Find(uint64_t offset) {
    while (at_ != end_ && at_->offset + at_->length <= offset) ++at_;
    return at_ != end_ && at_->offset <= offset ? &*at_ : nullptr;
  }
  // The end of what Find has found at `offset`, an extent or a hole.
  uint64_t FindEdge(uint64_t offset) const {
    if (at_ == end_) return kHole;
    return at_->offset <= offset ? at_->offset + at_->length : at_->offset;
  }

 private:
  std::vector<FileExtent>::const_iterator at_, end_;
};

// A place that is not known, such as that of data still to be written, equals no other.
bool IsSame(const FileExtent* a, const FileExtent* b, uint64_t offset) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->known && b->known && a->place + (offset - a->offset) == b->place + (offset - b->offset);
}

bool IsUnchanged(const FileExtent* a, const FileExtent* b, uint64_t offset) {
  const bool zero_a = a == nullptr || a->zero, zero_b = b == nullptr || b->zero;
  if (zero_a || zero_b) return zero_a && zero_b;
  return a->shared && b->shared && IsSame(a, b, offset);
}

// Where `is_same` says no, in `within`.
template <class Compare>
std::vector<FileRange> FindOthers(const std::vector<FileExtent>& a, const std::vector<FileExtent>& b,
                                  const FileRange& within, Compare is_same) {
  std::vector<FileRange> ranges;
  Walk in_a(a), in_b(b);
  for (uint64_t offset = within.offset, end; offset < within.end; offset = end) {
    const bool same = is_same(in_a.Find(offset), in_b.Find(offset), offset);
    end = std::min({in_a.FindEdge(offset), in_b.FindEdge(offset), within.end});
    if (same) continue;
    if (!ranges.empty() && ranges.back().end == offset) {
      ranges.back().end = end;
    } else {
      ranges.push_back({offset, end});
    }
  }
  return ranges;
}

}  // namespace

bool HasStableExtents(int fd) {
  struct statfs system {};
  return ::fstatfs(fd, &system) == 0 && system.f_type == XFS_SUPER_MAGIC;
}

absl::StatusOr<SomeExtents> ReadSomeExtents(int fd, const std::string& path, const FileRange& within,
                                            bool flush) {
  SomeExtents some{.extents = {}, .end = kHole};
  if (within.offset >= within.end) return some;
  std::vector<uint64_t> space((sizeof(fiemap) + kExtentsAtOnce * sizeof(fiemap_extent)) / sizeof(uint64_t));
  auto* const map = reinterpret_cast<fiemap*>(space.data());
  map->fm_start = within.offset;
  map->fm_length = within.end - within.offset;
  // What is only in memory has no place yet.
  map->fm_flags = flush ? FIEMAP_FLAG_SYNC : 0;
  map->fm_extent_count = kExtentsAtOnce;
  if (::ioctl(fd, FS_IOC_FIEMAP, map) != 0) return FileError("find the extents of", path, errno);
  bool last = map->fm_mapped_extents < kExtentsAtOnce;
  for (uint32_t i = 0; i < map->fm_mapped_extents; ++i) {
    const fiemap_extent& found = map->fm_extents[i];
    some.extents.push_back({.offset = found.fe_logical,
                            .length = found.fe_length,
                            .place = found.fe_physical,
                            .known = (found.fe_flags & ~kHarmless) == 0,
                            .zero = (found.fe_flags & ~kHarmless) == FIEMAP_EXTENT_UNWRITTEN,
                            .shared = (found.fe_flags & FIEMAP_EXTENT_SHARED) != 0});
    last = last || (found.fe_flags & FIEMAP_EXTENT_LAST) != 0;
  }
  if (!last) some.end = some.extents.back().offset + some.extents.back().length;
  return some;
}

absl::StatusOr<std::vector<FileExtent>> ReadExtents(int fd, const std::string& path, bool flush) {
  std::vector<FileExtent> extents;
  for (uint64_t from = 0; from != kHole;) {
    // Once: each flush would write what has become dirty since, for as long as there are writers.
    ASSIGN_OR_RETURN(const SomeExtents some, ReadSomeExtents(fd, path, {from, kHole}, flush && from == 0));
    extents.insert(extents.end(), some.extents.begin(), some.extents.end());
    from = some.end;
  }
  return extents;
}

std::vector<FileRange> FindDifferences(const std::vector<FileExtent>& a, const std::vector<FileExtent>& b,
                                       uint64_t size) {
  return FindOthers(a, b, {0, size}, IsSame);
}

std::vector<FileRange> FindChanges(const std::vector<FileExtent>& a, const std::vector<FileExtent>& b,
                                   const FileRange& within) {
  return FindOthers(a, b, within, IsUnchanged);
}

}  // namespace lunkeeper
