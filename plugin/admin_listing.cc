// All arrays are asked at once, each on a thread of its own (ask_each.h), and each writes a response of its
// own, so that the threads share nothing. The parts are joined in the order of the arrays.
#include "plugin/admin_listing.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "controller/response.h"
#include "devices/array/grant_store.h"
#include "plugin/ask_each.h"

namespace lunkeeper {
namespace {

// `list_page(token)` for every page. The array chooses how long a page is.
template <class T, class ListPage>
absl::StatusOr<std::vector<T>> CollectPages(const ListPage& list_page) {
  std::vector<T> all;
  std::string token;
  do {
    ASSIGN_OR_RETURN(Page<T> page, list_page(token));
    for (T& item : page.items) all.push_back(std::move(item));
    token = page.next_token;
  } while (!token.empty());
  return all;
}

absl::Status AddVolumes(const NamedArray& array, admin::v1::ListVolumesResponse& response) {
  ASSIGN_OR_RETURN(const auto volumes, CollectPages<Volume>([&](const std::string& token) {
                     return array.array->volumes().ListVolumes(token, 0);
                   }));
  // One list of all grants: a question for each volume would be thousands of calls.
  ASSIGN_OR_RETURN(const std::vector<Grant> grants, array.array->grants().ListGrants({}));
  std::map<VolumeId, std::set<std::string>> nodes;
  for (const Grant& grant : grants) nodes[grant.volume].insert(grant.node.value());
  for (const Volume& volume : volumes) {
    admin::v1::VolumeStatus* out = response.add_volumes();
    out->set_id(volume.id.value());
    out->set_array(array.name);
    out->set_name(volume.spec.name);
    out->set_size_bytes(volume.spec.size_bytes);
    out->set_created_unix_seconds(absl::ToUnixSeconds(volume.created));
    out->set_provisioning(volume.spec.provisioning == Provisioning::kThick ? "thick" : "thin");
    out->set_durability(volume.spec.durability == Durability::kSync ? "sync" : "cached");
    out->set_digests(ToString(volume.spec.digests));
    out->set_max_iops(volume.spec.limits.iops);
    out->set_max_bandwidth_bytes(volume.spec.limits.bytes_per_second);
    for (const std::string& node : nodes[volume.id]) out->add_nodes(node);
    // For `import`, like the two below: a new PersistentVolume has to ask for what the volume was made for.
    out->set_uses(volume.spec.uses.bits());
    out->set_fs_type(volume.spec.fs_type);
    out->set_claim(volume.spec.claim);
    // What CreateVolume answered. `lunkeeper import` makes a PersistentVolume from it that is like the lost
    // one.
    csi::v1::Volume answered;
    FillVolume(volume, &answered);
    *out->mutable_context() = answered.volume_context();
    *out->mutable_topology() = answered.accessible_topology(0).segments();
  }
  return absl::OkStatus();
}

absl::Status AddSnapshots(const NamedArray& array, admin::v1::ListSnapshotsResponse& response) {
  ASSIGN_OR_RETURN(const auto snapshots, CollectPages<Snapshot>([&](const std::string& token) {
                     return array.array->volumes().ListSnapshots(VolumeId(), token, 0);
                   }));
  for (const Snapshot& snapshot : snapshots) {
    admin::v1::SnapshotStatus* out = response.add_snapshots();
    out->set_id(snapshot.id.value());
    out->set_array(array.name);
    out->set_name(snapshot.name);
    out->set_volume(snapshot.source.value());
    out->set_size_bytes(snapshot.size_bytes);
    out->set_created_unix_seconds(absl::ToUnixSeconds(snapshot.created));
    out->set_ready(snapshot.ready);
    out->set_group(snapshot.group.value());
  }
  return absl::OkStatus();
}

template <class Response>
// A part without rows looks like an empty array. Only this tells the two apart.
void NoteAway(const NamedArray& array, const absl::Status& status, Response& response) {
  if (status.ok()) return;
  admin::v1::ArrayAway* away = response.add_away();
  away->set_array(array.name);
  away->set_why(std::string(status.message()));
}

template <class Response>
void Merge(const std::vector<Response>& parts, Response& whole) {
  for (const Response& part : parts) whole.MergeFrom(part);
}

}  // namespace

void ListAllVolumes(const std::vector<NamedArray>& arrays, admin::v1::ListVolumesResponse& response) {
  Merge(AskEach(arrays,
                [](const NamedArray& array) {
                  admin::v1::ListVolumesResponse part;
                  NoteAway(array, AddVolumes(array, part), part);
                  return part;
                }),
        response);
}

void ListAllSnapshots(const std::vector<NamedArray>& arrays, admin::v1::ListSnapshotsResponse& response) {
  Merge(AskEach(arrays,
                [](const NamedArray& array) {
                  admin::v1::ListSnapshotsResponse part;
                  NoteAway(array, AddSnapshots(array, part), part);
                  return part;
                }),
        response);
}

}  // namespace lunkeeper
