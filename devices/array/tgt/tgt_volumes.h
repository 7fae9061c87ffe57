#pragma once
// One cluster's volumes and snapshots in the tgt array. devices/array/volume_store.h says what each call does
// and how it fails. Thread-safe. It keeps nothing: what lasts is in the parts, which outlive it.

#include <string>
#include <utility>

#include "devices/array/tgt/tgt_parts.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

class TgtVolumes final : public VolumeStore {
 public:
  TgtVolumes(const TgtParts& parts, ClusterId cluster) : parts_(parts), cluster_(std::move(cluster)) {}

  absl::StatusOr<Volume> CreateVolume(const VolumeSpec& spec) override;
  absl::Status DeleteVolume(const VolumeId& id) override;
  absl::StatusOr<Volume> GetVolume(const VolumeId& id) override;
  absl::StatusOr<Page<Volume>> ListVolumes(const std::string& token, size_t limit) override;
  absl::StatusOr<Volume> ExpandVolume(const VolumeId& id, uint64_t size_bytes) override;
  absl::StatusOr<Volume> ModifyVolume(const VolumeId& id, const VolumeChange& change) override;
  absl::StatusOr<Snapshot> CreateSnapshot(const std::string& name, const VolumeId& source) override;
  absl::Status DeleteSnapshot(const SnapshotId& id) override;
  absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId& id) override;
  absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId& source, const std::string& token,
                                               size_t limit) override;
  absl::StatusOr<PoolCapacity> GetCapacity() override;

 private:
  absl::StatusOr<VolumeRow> MakeVolume(const VolumeSpec& spec, uint64_t asked_size_bytes);
  // What a copy of a file takes at once: nothing when it shares the file's space.
  absl::StatusOr<uint64_t> MeasureCopy(const std::string& from, bool own_space);
  absl::Status FillVolume(const VolumeRow& row, const std::string& from, bool own_space);
  // What a new volume begins with.
  struct Source {
    std::string path;    // in the pool; empty: nothing
    bool thick = false;  // a write to it must not need new space
  };
  absl::StatusOr<Source> FindSource(const VolumeSpec& spec);
  // The file first, then the LUNs that serve it. The caller holds the volume's object lock.
  absl::Status GrowVolume(const Volume& volume, uint64_t size_bytes);
  // The same as ModifyVolume, for what changes only while there is no grant.
  absl::Status ModifyUngranted(const VolumeId& id, const VolumeChange& change);
  // Takes a file its name away, before its row is deleted.
  absl::Status Condemn(const std::string& path);
  absl::StatusOr<Snapshot> MakeSnapshot(const std::string& name, const VolumeId& source);

  const TgtParts& parts_;
  const ClusterId cluster_;
};

}  // namespace lunkeeper
