#pragma once
// Where a file's data are on the disk, to tell which parts of two files are the same blocks. On XFS alone:
// there a block that two files share is never changed in place, so same place means same data. Functions
// without state. Failure: as pool_file.h.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lunkeeper {

struct FileExtent {
  uint64_t offset = 0, length = 0;  // in the file
  uint64_t place = 0;               // on the disk
  bool known = false;               // written, and at that place
  bool zero = false;                // allocated, and not written: it reads as zeroes
  bool shared = false;              // with another file, or another place in this one
};
struct FileRange {
  uint64_t offset = 0, end = 0;
};

// Whether this file is on a file system for which the above is true.
bool HasStableExtents(int fd);
// In order. What is in none of them is a hole. Of what is written meanwhile, and of what is dirty, the old
// place or none. `flush`: writes what is dirty first, for which the file's writers wait.
absl::StatusOr<std::vector<FileExtent>> ReadExtents(int fd, const std::string& path, bool flush = true);
// The first of them, some thousand, of what `within` has. `flush`: writes what is dirty first.
struct SomeExtents {
  std::vector<FileExtent> extents;
  uint64_t end = 0;  // where the next ones begin; UINT64_MAX: there are no more
};
absl::StatusOr<SomeExtents> ReadSomeExtents(int fd, const std::string& path, const FileRange& within,
                                            bool flush = true);
// Where the two may differ, up to `size`: all but holes in both, and known extents at the same place.
std::vector<FileRange> FindDifferences(const std::vector<FileExtent>& a, const std::vector<FileExtent>& b,
                                       uint64_t size);
// Where two files that do not change may differ, in `within`: all but zeroes in both, and known extents at
// the same place that are shared. They have to be: an extent that only one file has could have been moved
// away, and its place given to the other file, after the first list was read and before the second.
std::vector<FileRange> FindChanges(const std::vector<FileExtent>& a, const std::vector<FileExtent>& b,
                                   const FileRange& within);

}  // namespace lunkeeper
