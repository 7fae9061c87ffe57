#pragma once
// The snapshots of a FakeArray, and the groups of them. One thread at a time; the array's lock sees to that.
// Failure: as devices/array/volume_store.h and snapshot_groups.h say.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/name_index.h"
#include "devices/array/snapshot_blocks.h"
#include "devices/array/snapshot_groups.h"

namespace lunkeeper {

constexpr uint64_t kFakeBlock = 4096;

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
  // The id of the snapshot or group of this name; empty: there is none.
  std::string FindNamed(NamedKind kind, const std::string& name) const;

  // A write of the volume's block at `offset`, of kFakeBlock bytes, and a discard of it.
  void Write(const VolumeId& volume, uint64_t offset) { written_[volume][offset] = ++writes_; }
  void Discard(const VolumeId& volume, uint64_t offset) { written_[volume].erase(offset); }
  absl::StatusOr<BlockPage> ListBlocks(const BlockQuery& query) const;

  void HoldCopies(bool hold) { hold_copies_ = hold; }

 private:
  using Blocks = std::map<uint64_t, uint64_t>;  // of each block that was written: which write it was

  std::string NextId(char kind);
  // What is in one only, or of another write.
  static Blocks Difference(const Blocks& a, const Blocks& b);

  const std::string array_;
  uint64_t ids_ = 0;
  bool hold_copies_ = false;
  std::map<SnapshotId, Snapshot> snapshots_;
  std::map<SnapshotGroupId, SnapshotGroup> groups_;
  uint64_t writes_ = 0;
  std::map<VolumeId, Blocks> written_;
  std::map<SnapshotId, Blocks> kept_;
};

}  // namespace lunkeeper
