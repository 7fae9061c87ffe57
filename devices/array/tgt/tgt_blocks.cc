// No lock keeps a snapshot while its blocks are listed. If it is deleted before its file is opened, the
// answer is NOT_FOUND; if afterwards, this page is still right, and the next one is NOT_FOUND.
#include "devices/array/tgt/tgt_blocks.h"

#include <algorithm>

#include "base/status_macros.h"

namespace lunkeeper {

PoolImage TgtBlocks::ImageOf(const Snapshot& snapshot) const {
  return {parts_.images.SnapshotPath(snapshot.source, snapshot.id), snapshot.size_bytes};
}

absl::StatusOr<BlockPage> TgtBlocks::ListBlocks(const BlockQuery& query) {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(const SnapshotRow row, parts_.catalogue.volumes().FindSnapshot(cluster_, query.snapshot));
  BlockQuery bounded = query;
  bounded.limit = query.limit == 0 ? kMostBlockRanges : std::min(query.limit, kMostBlockRanges);
  if (!query.base.empty()) return ListChanges(bounded, row.snapshot);
  RETURN_IF_ERROR(CheckBlockQuery(query, row.snapshot, nullptr));
  return parts_.images.FindData(ImageOf(row.snapshot), bounded.offset, bounded.limit);
}

absl::StatusOr<BlockPage> TgtBlocks::ListChanges(const BlockQuery& query, const Snapshot& snapshot) {
  ASSIGN_OR_RETURN(const SnapshotRow base, parts_.catalogue.volumes().FindSnapshot(cluster_, query.base));
  RETURN_IF_ERROR(CheckBlockQuery(query, snapshot, &base.snapshot));
  return parts_.images.FindChanges(ImageOf(base.snapshot), ImageOf(snapshot), query.offset, query.limit);
}

}  // namespace lunkeeper
