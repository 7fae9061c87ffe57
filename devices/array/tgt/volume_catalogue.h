#pragma once
// The catalogue's volumes, snapshots and groups of snapshots. Threads, durability and failure: as catalogue.h
// says.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/snapshot_groups.h"
#include "devices/array/tgt/catalogue_file.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

struct VolumeRow {
  ClusterId cluster;
  Volume volume;
  // The size when it was made, rounded: part of the key of idempotency.
  uint64_t asked_size_bytes = 0;
  bool copying = false;  // its source is still being copied
};

struct SnapshotRow {
  ClusterId cluster;
  Snapshot snapshot;  // ready: not copying
};

class VolumeCatalogue {
 public:
  explicit VolumeCatalogue(CatalogueFile& file) : file_(file) {}

  // ALREADY_EXISTS: the cluster has a volume of this name.
  // FAILED_PRECONDITION: it is copying from a volume that is granted.
  // NOT_FOUND: it is copying from what the cluster does not have any more.
  absl::Status InsertVolume(const VolumeRow& row);
  absl::StatusOr<VolumeRow> FindVolume(const ClusterId& cluster, const VolumeId& id);
  absl::StatusOr<std::optional<VolumeRow>> FindVolumeNamed(const ClusterId& cluster, const std::string& name);
  absl::StatusOr<std::vector<VolumeRow>> ListVolumes(const ClusterId& cluster, const std::string& after,
                                                     size_t limit);
  // Those of which a node has a grant, or that node, if one is named: one question for a list of grants.
  absl::StatusOr<std::vector<VolumeRow>> ListGrantedVolumes(const ClusterId& cluster, const NodeId& node);
  // Of all clusters.
  absl::StatusOr<std::vector<VolumeRow>> ListAllVolumes();
  struct Sums {
    std::map<ClusterId, uint64_t> sizes;  // of the volumes and snapshots of each cluster that has any
    uint64_t volumes = 0, snapshots = 0;  // how many, of all clusters
  };
  absl::StatusOr<Sums> SumUp();
  // All of the change, or nothing. FAILED_PRECONDITION: another durability or digests, and it is granted.
  absl::Status ModifyVolume(const ClusterId& cluster, const VolumeId& id, const VolumeChange& change);
  absl::Status SetVolumeSize(const VolumeId& id, uint64_t size_bytes);
  absl::Status SetVolumeReady(const VolumeId& id);
  // FAILED_PRECONDITION: it is granted; the message names the nodes.
  absl::Status CheckNotGranted(const VolumeId& id);
  // FAILED_PRECONDITION: as there. ABORTED: it is being copied from.
  // `mark_files` runs when nothing forbids it, in the same change; an error of it keeps the row. It may run
  // twice.
  absl::Status DeleteVolume(const VolumeId& id, const std::function<absl::Status()>& mark_files = {});

  absl::Status InsertSnapshot(const SnapshotRow& row);
  absl::StatusOr<SnapshotRow> FindSnapshot(const ClusterId& cluster, const SnapshotId& id);
  absl::StatusOr<std::optional<SnapshotRow>> FindSnapshotNamed(const ClusterId& cluster,
                                                               const std::string& name);
  absl::StatusOr<std::vector<SnapshotRow>> ListSnapshots(const ClusterId& cluster, const VolumeId& source,
                                                         const std::string& after, size_t limit);
  absl::StatusOr<std::vector<SnapshotRow>> ListAllSnapshots();
  absl::Status SetSnapshotReady(const SnapshotId& id);
  // INVALID_ARGUMENT: it is a group's. ABORTED: it is being copied from. `mark_files` as for DeleteVolume.
  absl::Status DeleteSnapshot(const SnapshotId& id, const std::function<absl::Status()>& mark_files = {});

  // A group with all its snapshots, which are ready, in one change.
  absl::Status InsertGroup(const ClusterId& cluster, const SnapshotGroup& group);
  absl::StatusOr<SnapshotGroup> FindGroup(const ClusterId& cluster, const SnapshotGroupId& id);
  absl::StatusOr<std::optional<SnapshotGroup>> FindGroupNamed(const ClusterId& cluster,
                                                              const std::string& name);
  // With its snapshots. `mark_files` as for DeleteVolume.
  absl::Status DeleteGroup(const SnapshotGroupId& id, const std::function<absl::Status()>& mark_files);

 private:
  absl::StatusOr<std::optional<SnapshotGroup>> ReadGroup(const char* sql, SqlValues values);
  absl::StatusOr<std::vector<VolumeRow>> ReadVolumes(const char* sql, SqlValues values);
  absl::StatusOr<std::vector<SnapshotRow>> ReadSnapshots(const char* sql, SqlValues values);

  CatalogueFile& file_;
};

}  // namespace lunkeeper
