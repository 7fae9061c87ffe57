#pragma once
// Which blocks of a snapshot a backup has to copy: all that were written, or the ones that differ from an
// older snapshot of the same volume. See devices/array/array.h for threads, durability and failure.
//
// No data are read for it, and a list may name more than was written, never less. It comes in pages, and the
// array keeps nothing between them. So a caller takes as long as it likes, goes on at any offset, and learns
// by NOT_FOUND when a snapshot is deleted meanwhile.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

// More than this are never in one page.
constexpr size_t kMostBlockRanges = 4096;

struct BlockRange {
  uint64_t offset = 0, length = 0;  // in bytes; never empty
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

struct BlockQuery {
  SnapshotId snapshot;
  // Of the same volume, and older. Empty: all that was written. Outside of it a snapshot reads as zeroes.
  SnapshotId base = {};
  uint64_t offset = 0;  // where to begin
  size_t limit = 0;     // ranges in a page; 0: as many as the array likes
};

struct BlockPage {
  std::vector<BlockRange> ranges;  // in order, none over another; may be empty before the end too
  uint64_t size_bytes = 0;         // of the snapshot
  uint64_t next_offset = 0;        // where the next page begins; size_bytes at the end
};

class SnapshotBlocks {
 public:
  virtual ~SnapshotBlocks() = default;

  // INVALID_ARGUMENT: the base is of another volume, or not older. OUT_OF_RANGE: an offset behind the end.
  // ABORTED: a snapshot is still being copied. FAILED_PRECONDITION: the pool cannot tell what differs.
  virtual absl::StatusOr<BlockPage> ListBlocks(const BlockQuery& query) = 0;
};

// As ListBlocks says, but for what depends on the pool. `base` null: the query names none.
absl::Status CheckBlockQuery(const BlockQuery& query, const Snapshot& snapshot, const Snapshot* base);

}  // namespace lunkeeper
