#pragma once
// What one cluster's snapshots in the tgt array have, and how two of them differ. devices/array/
// snapshot_blocks.h says what the call does and how it fails. Thread-safe; it keeps nothing, and holds no
// lock: a snapshot's file never changes, and while it is open its blocks stay, also when it is deleted.

#include <utility>

#include "devices/array/snapshot_blocks.h"
#include "devices/array/tgt/tgt_parts.h"

namespace lunkeeper {

class TgtBlocks final : public SnapshotBlocks {
 public:
  TgtBlocks(const TgtParts& parts, ClusterId cluster) : parts_(parts), cluster_(std::move(cluster)) {}

  absl::StatusOr<BlockPage> ListBlocks(const BlockQuery& query) override;

 private:
  PoolImage ImageOf(const Snapshot& snapshot) const;
  absl::StatusOr<BlockPage> ListChanges(const BlockQuery& query, const Snapshot& snapshot);

  const TgtParts& parts_;
  const ClusterId cluster_;
};

}  // namespace lunkeeper
