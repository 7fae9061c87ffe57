// CSI's sizes are signed and an array's are not; a pool beyond 8 EiB is shown as that large. An id carries
// the name of its array, so the topology of a volume needs no question to the array.
#include "controller/response.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/units.h"
#include "controller/request.h"
#include "devices/array/arrays.h"

namespace lunkeeper {
namespace {

int64_t ToCsiBytes(uint64_t bytes) {
  return static_cast<int64_t>(std::min<uint64_t>(bytes, std::numeric_limits<int64_t>::max()));
}

void FillTime(absl::Time time, google::protobuf::Timestamp* out) {
  const int64_t seconds = absl::ToUnixSeconds(time);
  out->set_seconds(seconds);
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

}  // namespace

// The content source is repeated in each response, as CSI asks for volumes that were made from something. The
// context is the same in each, too: Mesos takes a volume whose context differs for another resource.
void FillVolume(const Volume& volume, csi::v1::Volume* out) {
  out->set_volume_id(volume.id.value());
  out->set_capacity_bytes(ToCsiBytes(volume.spec.size_bytes));
  *out->add_accessible_topology() = TopologyOf(ArrayNameIn(volume.id.value()));
  if (!volume.spec.fs_type.empty()) (*out->mutable_volume_context())["fsType"] = volume.spec.fs_type;
  if (!volume.spec.source_snapshot.empty()) {
    out->mutable_content_source()->mutable_snapshot()->set_snapshot_id(volume.spec.source_snapshot.value());
  } else if (!volume.spec.source_volume.empty()) {
    out->mutable_content_source()->mutable_volume()->set_volume_id(volume.spec.source_volume.value());
  }
}

void FillSnapshot(const Snapshot& snapshot, csi::v1::Snapshot* out) {
  out->set_snapshot_id(snapshot.id.value());
  out->set_source_volume_id(snapshot.source.value());
  out->set_size_bytes(ToCsiBytes(snapshot.size_bytes));
  out->set_ready_to_use(snapshot.ready);
  // accessible_topology is left out, as it may be: a volume made from it says where it can go, and csi-sanity
  // 5.6.0 takes any that is returned for a wrong one (it compares the messages' cached sizes too).
  FillTime(snapshot.created, out->mutable_creation_time());
  out->set_group_snapshot_id(snapshot.group.value());
}

// A copy that fails is gone, and a repeated call begins another one, under another id and of a later moment.
// external-snapshotter keeps the first id that it is given, and would call that one ready when the other is.
absl::Status FillTaken(const Snapshot& snapshot, csi::v1::Snapshot* out) {
  if (!snapshot.ready)
    return absl::AbortedError(
        absl::StrCat("snapshot ", snapshot.name, ": it is still being copied; try again"));
  FillSnapshot(snapshot, out);
  return absl::OkStatus();
}

void FillGroup(const SnapshotGroup& group, csi::v1::VolumeGroupSnapshot* out) {
  out->set_group_snapshot_id(group.id.value());
  for (const Snapshot& snapshot : group.snapshots) FillSnapshot(snapshot, out->add_snapshots());
  FillTime(group.created, out->mutable_creation_time());
  out->set_ready_to_use(std::ranges::all_of(group.snapshots, &Snapshot::ready));
}

void FillCapacity(const PoolCapacity& pool, csi::v1::GetCapacityResponse* out) {
  // Mesos asks for a volume of exactly what it was offered, and volumes are whole MiB.
  out->set_available_capacity(ToCsiBytes(pool.creatable_bytes / kMiB * kMiB));
  // Where there is one, Kubernetes' scheduler goes by this alone: never more than there is room for.
  out->mutable_maximum_volume_size()->set_value(
      std::min(out->available_capacity(), ToCsiBytes(pool.largest_volume_bytes)));
  out->mutable_minimum_volume_size()->set_value(ToCsiBytes(pool.smallest_volume_bytes));
}

void FillCapabilities(csi::v1::ControllerGetCapabilitiesResponse* out) {
  using Rpc = csi::v1::ControllerServiceCapability::RPC;
  for (const auto type :
       {Rpc::CREATE_DELETE_VOLUME, Rpc::PUBLISH_UNPUBLISH_VOLUME, Rpc::LIST_VOLUMES, Rpc::GET_CAPACITY,
        Rpc::CREATE_DELETE_SNAPSHOT, Rpc::LIST_SNAPSHOTS, Rpc::CLONE_VOLUME, Rpc::PUBLISH_READONLY,
        Rpc::EXPAND_VOLUME, Rpc::LIST_VOLUMES_PUBLISHED_NODES, Rpc::GET_VOLUME, Rpc::SINGLE_NODE_MULTI_WRITER,
        Rpc::GET_SNAPSHOT, Rpc::MODIFY_VOLUME, Rpc::GET_VOLUME_HEALTH, Rpc::LIST_VOLUME_HEALTH}) {
    out->add_capabilities()->mutable_rpc()->set_type(type);
  }
}

}  // namespace lunkeeper
