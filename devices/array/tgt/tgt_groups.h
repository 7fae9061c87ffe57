#pragma once
// One cluster's groups of snapshots in the tgt array. devices/array/snapshot_groups.h says what each call
// does and how it fails. Thread-safe. It keeps nothing: what lasts is in the parts, which outlive it.

#include <string>
#include <utility>
#include <vector>

#include "devices/array/snapshot_groups.h"
#include "devices/array/tgt/pool_clones.h"
#include "devices/array/tgt/tgt_parts.h"

namespace lunkeeper {

class TgtGroups final : public SnapshotGroups {
 public:
  TgtGroups(const TgtParts& parts, ClusterId cluster) : parts_(parts), cluster_(std::move(cluster)) {}

  absl::StatusOr<SnapshotGroup> CreateGroup(const std::string& name,
                                            const std::vector<VolumeId>& sources) override;
  absl::Status DeleteGroup(const SnapshotGroupId& id) override;
  absl::StatusOr<SnapshotGroup> GetGroup(const SnapshotGroupId& id) override;

 private:
  absl::StatusOr<SnapshotGroup> MakeGroup(const std::string& name, const std::vector<VolumeId>& sources);
  // Nobody grows or deletes these volumes while the locks are held.
  absl::StatusOr<std::vector<KeyedLock::Guard>> LockVolumes(const std::vector<VolumeId>& sources);
  absl::StatusOr<std::vector<VolumeRow>> FindSources(const std::vector<VolumeId>& sources);
  absl::StatusOr<PoolRoom::Reservation> ReserveRoom(const std::string& name,
                                                    const std::vector<VolumeRow>& sources);
  // The group's row, and what its files are cloned from.
  SnapshotGroup DescribeGroup(const std::string& name, const std::vector<VolumeRow>& sources) const;
  std::vector<PoolClone> DescribeClones(const SnapshotGroup& group,
                                        const std::vector<VolumeRow>& sources) const;
  absl::Status CloneAtOneMoment(PoolClones& clones, SnapshotGroup& group);
  absl::Status KeepFiles(const SnapshotGroup& group);

  const TgtParts& parts_;
  const ClusterId cluster_;
};

}  // namespace lunkeeper
