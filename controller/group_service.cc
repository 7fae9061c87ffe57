// A thin layer. The router finds the array of a group or of its volumes, and refuses volumes of two arrays
// (array_router.h). That all snapshots are of one moment, and that a repeated call finds its group, is the
// array's work.
#include "controller/group_service.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/grpc_status.h"
#include "base/status_macros.h"
#include "controller/request.h"
#include "controller/response.h"
#include "devices/array/array_router.h"

namespace lunkeeper {
namespace {

using grpc::ServerContext;
namespace v1 = csi::v1;
using Ids = google::protobuf::RepeatedPtrField<std::string>;

absl::Status CheckIds(const char* field, const Ids& ids) {
  for (const std::string& id : ids) RETURN_IF_ERROR(CheckId(field, id));
  return absl::OkStatus();
}

// The array knows a group's snapshots by itself. The list is for plugins that do not, and CSI wants the
// others to say so when it differs.
absl::Status CheckMembers(const SnapshotGroup& group, const Ids& ids) {
  std::set<std::string> members;
  for (const Snapshot& snapshot : group.snapshots) members.insert(snapshot.id.value());
  if (members == std::set<std::string>(ids.begin(), ids.end())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("snapshot_ids: they are not those of group ",
                                                 group.id.value(), ", which has ", members.size()));
}

class GroupControllerService final : public v1::GroupController::Service {
 public:
  explicit GroupControllerService(Arrays& arrays) : arrays_(arrays), groups_(MakeGroupRouter(arrays)) {}

  grpc::Status GroupControllerGetCapabilities(ServerContext*,
                                              const v1::GroupControllerGetCapabilitiesRequest*,
                                              v1::GroupControllerGetCapabilitiesResponse* response) override {
    using Rpc = v1::GroupControllerServiceCapability::RPC;
    response->add_capabilities()->mutable_rpc()->set_type(Rpc::CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT);
    return grpc::Status::OK;
  }

  grpc::Status CreateVolumeGroupSnapshot(ServerContext*, const v1::CreateVolumeGroupSnapshotRequest* request,
                                         v1::CreateVolumeGroupSnapshotResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckName(request->name()));
      if (request->source_volume_ids().empty())
        return absl::InvalidArgumentError("source_volume_ids: required, but empty");
      RETURN_IF_ERROR(CheckIds("source_volume_ids", request->source_volume_ids()));
      RETURN_IF_ERROR(CheckNoParameters("parameters", request->parameters()));
      const Ids& ids = request->source_volume_ids();
      ASSIGN_OR_RETURN(const SnapshotGroup taken,
                       groups_->CreateGroup(request->name(), {ids.begin(), ids.end()}));
      FillGroup(taken, response->mutable_group_snapshot());
      return absl::OkStatus();
    });
  }

  grpc::Status DeleteVolumeGroupSnapshot(ServerContext*, const v1::DeleteVolumeGroupSnapshotRequest* request,
                                         v1::DeleteVolumeGroupSnapshotResponse*) override {
    return AnswerRpc([&]() -> absl::Status {
      // As volumes and snapshots: nobody can say what a group has on an array that was removed.
      if (arrays_.IsRemoved(ArrayNameIn(request->group_snapshot_id()))) return absl::OkStatus();
      const absl::StatusOr<SnapshotGroup> group = Find(request->group_snapshot_id(), request->snapshot_ids());
      // Deleted already, perhaps by a call whose answer was lost.
      if (absl::IsNotFound(group.status())) return absl::OkStatus();
      RETURN_IF_ERROR(group.status());
      return groups_->DeleteGroup(group->id);
    });
  }

  grpc::Status GetVolumeGroupSnapshot(ServerContext*, const v1::GetVolumeGroupSnapshotRequest* request,
                                      v1::GetVolumeGroupSnapshotResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const SnapshotGroup group,
                       Find(request->group_snapshot_id(), request->snapshot_ids()));
      FillGroup(group, response->mutable_group_snapshot());
      return absl::OkStatus();
    });
  }

 private:
  absl::StatusOr<SnapshotGroup> Find(const std::string& id, const Ids& snapshots) {
    RETURN_IF_ERROR(CheckId("group_snapshot_id", id));
    RETURN_IF_ERROR(CheckIds("snapshot_ids", snapshots));
    ASSIGN_OR_RETURN(SnapshotGroup group, groups_->GetGroup(SnapshotGroupId(id)));
    RETURN_IF_ERROR(CheckMembers(group, snapshots));
    return group;
  }

  Arrays& arrays_;
  const std::unique_ptr<SnapshotGroups> groups_;  // of all arrays
};

}  // namespace

std::unique_ptr<v1::GroupController::Service> MakeGroupControllerService(Arrays& arrays) {
  return std::make_unique<GroupControllerService>(arrays);
}

}  // namespace lunkeeper
