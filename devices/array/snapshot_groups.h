#pragma once
// Groups of snapshots: one for each of several volumes, all of one moment. See devices/array/array.h for
// threads, durability and failure.

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

// All of them are cloned in one moment in which nothing is written, so there is a limit.
constexpr size_t kMostInGroup = 128;

struct SnapshotGroup {
  SnapshotGroupId id;
  std::string name;
  absl::Time created;
  std::vector<Snapshot> snapshots;  // one at least; in order of their ids
};

class SnapshotGroups {
 public:
  virtual ~SnapshotGroups() = default;

  // Consistent across the volumes: a write that was begun after another one had been acknowledged, on
  // whichever volume and node, is in the group only if that other one is. The volumes' I/O stands for a
  // second at most. All of the snapshots are made, or none. Idempotent by name.
  // INVALID_ARGUMENT: no source, one named twice, or too many. ALREADY_EXISTS: the name is taken by a group
  // of other volumes. FAILED_PRECONDITION: the pool cannot reflink, the volumes are on several arrays,
  // or one is in too many pieces.
  // ABORTED: one of them is being grown, deleted or copied. UNAVAILABLE: the disk was too busy for it.
  virtual absl::StatusOr<SnapshotGroup> CreateGroup(const std::string& name,
                                                    const std::vector<VolumeId>& sources) = 0;
  // With all its snapshots. OK when it is gone already.
  virtual absl::Status DeleteGroup(const SnapshotGroupId& id) = 0;
  virtual absl::StatusOr<SnapshotGroup> GetGroup(const SnapshotGroupId& id) = 0;
};

// INVALID_ARGUMENT: as CreateGroup says.
absl::Status CheckGroupSources(const std::string& name, const std::vector<VolumeId>& sources);
// Whether the group is of exactly these volumes, in whatever order.
bool IsGroupOf(const SnapshotGroup& group, const std::vector<VolumeId>& sources);

}  // namespace lunkeeper
