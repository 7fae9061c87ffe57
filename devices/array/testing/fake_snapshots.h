#pragma once
// The snapshots of a FakeArray, and the groups of them. One thread at a time; the array's lock sees to that.
// Failure: as devices/array/volume_store.h and snapshot_groups.h say.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/snapshot_groups.h"

namespace lunkeeper {

class FakeSnapshots {
 public:
  explicit FakeSnapshots(std::string array) : array_(std::move(array)) {}

  // The one of that name, if it is of that volume; null: there is none of that name.
  absl::StatusOr<const Snapshot*> FindMade(const std::string& name, const VolumeId& source) const;
  Snapshot Add(const std::string& name, const Volume& source);
  absl::Status Delete(const SnapshotId& id);
  absl::StatusOr<Snapshot> Get(const SnapshotId& id) const;
  absl::StatusOr<Page<Snapshot>> List(const VolumeId& source, const std::string& token, size_t limit) const;

  // As FindMade.
  absl::StatusOr<const SnapshotGroup*> FindMadeGroup(const std::string& name,
                                                     const std::vector<VolumeId>& sources) const;
  SnapshotGroup AddGroup(const std::string& name, const std::vector<Volume>& sources);
  absl::Status DeleteGroup(const SnapshotGroupId& id);
  absl::StatusOr<SnapshotGroup> GetGroup(const SnapshotGroupId& id) const;

 private:
  std::string NextId(char kind);

  const std::string array_;
  uint64_t ids_ = 0;
  std::map<SnapshotId, Snapshot> snapshots_;
  std::map<SnapshotGroupId, SnapshotGroup> groups_;
};

}  // namespace lunkeeper
