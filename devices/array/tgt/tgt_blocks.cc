// No lock keeps a snapshot while its blocks are listed. If it is deleted before its file is opened, the
// answer is NOT_FOUND; if afterwards, this page is still right, and the next one is NOT_FOUND.
#include "devices/array/tgt/tgt_blocks.h"

#include <algorithm>

#include "base/status_macros.h"
#include "devices/array/tgt/pool_blocks.h"

namespace lunkeeper {

absl::StatusOr<BlockPage> TgtBlocks::ListBlocks(const BlockQuery& query) {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(const SnapshotRow row, parts_.catalogue.volumes().FindSnapshot(cluster_, query.snapshot));
  BlockQuery bounded = query;
  bounded.limit = query.limit == 0 ? kMostBlockRanges : std::min(query.limit, kMostBlockRanges);
  if (!query.base.empty()) return ListChanges(bounded, row.snapshot);
  RETURN_IF_ERROR(CheckBlockQuery(query, row.snapshot, nullptr));
  return FindData({parts_.pool.SnapshotPath(query.snapshot), row.snapshot.size_bytes}, bounded.offset,
                  bounded.limit);
}

absl::StatusOr<BlockPage> TgtBlocks::ListChanges(const BlockQuery& query, const Snapshot& snapshot) {
  ASSIGN_OR_RETURN(const SnapshotRow base, parts_.catalogue.volumes().FindSnapshot(cluster_, query.base));
  RETURN_IF_ERROR(CheckBlockQuery(query, snapshot, &base.snapshot));
  // Each snapshot is a copy: where it is on the disk tells nothing of another one.
  if (!parts_.pool.reflinks()) return ChangesAreUnknown();
  return FindChanges({parts_.pool.SnapshotPath(query.base), base.snapshot.size_bytes},
                     {parts_.pool.SnapshotPath(query.snapshot), snapshot.size_bytes}, query.offset,
                     query.limit);
}

}  // namespace lunkeeper
