// An operator's calls, on gRPC's threads. Status asks all arrays at once and reports one that does not answer
// as "not serving", so that it never fails as a whole: it is what an operator runs when something is broken.
// Fence and Unfence go to one array and begin a term of their own. A leader that acts at the same moment is
// refused by the array from then on, and begins a term again; so the two never overlap half done.
#include "plugin/admin_service.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/grpc_status.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/grant_store.h"
#include "devices/node_id.h"
#include "plugin/admin_listing.h"
#include "plugin/admin_status.h"
#include "plugin/ask_each.h"
#include "plugin/handover_call.h"

namespace lunkeeper {
namespace {

using admin::v1::ArrayStatus;
using admin::v1::FenceStatus;
using grpc::ServerContext;

void FillFence(const FenceRecord& fence, FenceStatus* out) {
  out->set_node(fence.node.value());
  out->set_generation(fence.generation);
  out->set_term(fence.term);
  for (const VolumeId& volume : fence.volumes) out->add_volumes(volume.value());
  out->set_fenced_by(fence.fenced_by);
  out->set_reason(fence.reason);
  out->set_fenced_unix_seconds(absl::ToUnixSeconds(fence.fenced_at));
}

void FillUses(const std::vector<fencing::VolumeUse>& uses, admin::v1::ArrayUses* out) {
  for (const fencing::VolumeUse& use : uses) {
    admin::v1::VolumeUse* entry = out->add_uses();
    entry->set_volume(use.volume.value());
    entry->set_node(use.node.value());
    entry->set_has_device(use.has_device);
    entry->set_node_is_silent(use.is_silent);
    entry->set_io_ended(use.io_ended);
    for (const auto& pod : use.pods) entry->add_pods(pod.first.value());
  }
}

// The holder of the term, as the array records it.
std::string OperatorHere() { return absl::StrCat(kOperator, HostName()); }

// A name means the machine, which could come back as another instance; an id means that instance, beside
// which another of its name may be well.
NodeId ToFence(const std::string& name_or_id) {
  return IsNodeId(name_or_id) || IsMachineId(NodeId(name_or_id)) ? NodeId(name_or_id) : MachineId(name_or_id);
}

// Something of that name is or was here. A list that cannot be had says nothing, and keeps nobody from
// fencing.
bool IsKnown(Array& array, const NodeId& id) {
  const auto has = [&](const auto& entries) {
    return !entries.ok() || std::any_of(entries->begin(), entries->end(),
                                        [&](const auto& entry) { return IsIdFor(id, entry.node); });
  };
  const auto landed = array.fences().ListHeartbeats();
  return has(array.grants().ListGrants({})) || has(array.fences().ListFences()) ||
         (!absl::IsUnimplemented(landed.status()) && has(landed));
}

FenceRequest ManualFence(const admin::v1::FenceRequest& asked) {
  return {.node = ToFence(asked.node()),
          .volumes = {asked.volumes().begin(), asked.volumes().end()},
          .fenced_by = OperatorHere(),
          .reason = asked.reason().empty() ? "by hand" : asked.reason(),
          .all_volumes = asked.volumes().empty()};
}

// The fence with this generation: of the instance, or of its machine. Otherwise one that the array refuses to
// lift for its generation, or none.
absl::StatusOr<NodeId> FindFenced(FenceControl& fences, const std::string& name_or_id,
                                  Generation generation) {
  ASSIGN_OR_RETURN(const auto in_force, fences.ListFences());
  const NodeId asked = ToFence(name_or_id);
  // A machine and each of its instances may be fenced at the same time: the generation says which is meant.
  NodeId found = asked;
  for (const FenceRecord& fence : in_force) {
    if (!IsIdFor(fence.node, asked)) continue;
    found = fence.node;
    if (fence.generation == generation) break;
  }
  return found;
}

class AdminService final : public admin::v1::Admin::Service {
 public:
  AdminService(const Backends* backends, std::string mode) : backends_(*backends), mode_(std::move(mode)) {}

  grpc::Status Status(ServerContext*, const admin::v1::StatusRequest*,
                      admin::v1::StatusResponse* response) override {
    response->set_version(LUNKEEPER_VERSION);
    response->set_mode(mode_);
    absl::Status ready = backends_.CheckReady();
    for (ArrayStatus& array : AskEach(AllArrays(), &DescribeArray))
      *response->add_arrays() = std::move(array);
    // A data path that does not answer has been reported by CheckReady.
    if (ready.ok() && backends_.prober != nullptr) ready = FillDevices(backends_, response);
    if (backends_.failover)
      for (std::string& line : backends_.failover()) response->add_failover(std::move(line));
    FillGateways(backends_, response);
    FillCertificates(backends_, response);
    response->set_node_id(backends_.node.value());
    response->set_not_ready(std::string(ready.message()));
    return grpc::Status::OK;
  }

  grpc::Status ListVolumes(ServerContext*, const admin::v1::ListVolumesRequest*,
                           admin::v1::ListVolumesResponse* response) override {
    if (backends_.arrays == nullptr) return ToGrpcStatus(NoArray());
    ListAllVolumes(AllArrays(), *response);
    return grpc::Status::OK;
  }

  grpc::Status ListSnapshots(ServerContext*, const admin::v1::ListSnapshotsRequest*,
                             admin::v1::ListSnapshotsResponse* response) override {
    if (backends_.arrays == nullptr) return ToGrpcStatus(NoArray());
    ListAllSnapshots(AllArrays(), *response);
    return grpc::Status::OK;
  }

  grpc::Status Fence(ServerContext*, const admin::v1::FenceRequest* request,
                     admin::v1::FenceResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const auto array, ArrayNamed(request->array()));
      if (request->node().empty()) return absl::InvalidArgumentError("fence: which node? The name is empty");
      response->set_unknown(!IsKnown(*array, ToFence(request->node())));
      ASSIGN_OR_RETURN(const Term term, array->fences().BeginTerm(OperatorHere()));
      ASSIGN_OR_RETURN(const FenceRecord fence, array->fences().FenceNode(term, ManualFence(*request)));
      LogInfo("admin", "fenced by hand",
              {{"node", fence.node.value()},
               {"generation", absl::StrCat(fence.generation)},
               {"volumes", absl::StrCat(fence.volumes.size())}});
      FillFence(fence, response->mutable_fence());
      return absl::OkStatus();
    });
  }

  grpc::Status Unfence(ServerContext*, const admin::v1::UnfenceRequest* request,
                       admin::v1::UnfenceResponse*) override {
    return AnswerRpc([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const auto array, ArrayNamed(request->array()));
      if (request->node().empty())
        return absl::InvalidArgumentError("unfence: which node? The name is empty");
      ASSIGN_OR_RETURN(const Term term, array->fences().BeginTerm(OperatorHere()));
      ASSIGN_OR_RETURN(const NodeId fenced,
                       FindFenced(array->fences(), request->node(), request->generation()));
      // The array refuses a generation other than that of the fence in force: an operator who read an older
      // status cannot lift a newer fence.
      return array->fences().UnfenceNode(term, fenced, request->generation());
    });
  }

  grpc::Status AcceptRestore(ServerContext*, const admin::v1::AcceptRestoreRequest*,
                             admin::v1::AcceptRestoreResponse*) override {
    return ToGrpcStatus(backends_.accept_restore ? backends_.accept_restore() : NotHere());
  }

  grpc::Status ListOrphans(ServerContext*, const admin::v1::ListOrphansRequest*,
                           admin::v1::ListOrphansResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      if (!backends_.list_orphans) return NotHere();
      ASSIGN_OR_RETURN(const std::vector<OrphanFile> orphans, backends_.list_orphans());
      for (const OrphanFile& orphan : orphans) {
        admin::v1::OrphanFile* out = response->add_orphans();
        out->set_name(orphan.name);
        out->set_taken_bytes(orphan.taken_bytes);
        out->set_changed_seconds(absl::ToUnixSeconds(orphan.changed));
      }
      return absl::OkStatus();
    });
  }

  grpc::Status DeleteOrphans(ServerContext*, const admin::v1::DeleteOrphansRequest* request,
                             admin::v1::DeleteOrphansResponse*) override {
    return AnswerRpc([&]() -> absl::Status {
      if (!backends_.delete_orphan) return NotHere();
      for (const std::string& name : request->names()) RETURN_IF_ERROR(backends_.delete_orphan(name));
      return absl::OkStatus();
    });
  }

  grpc::Status RemoveArray(ServerContext*, const admin::v1::RemoveArrayRequest* request,
                           admin::v1::ArrayUses* response) override {
    return AnswerRpc([&]() -> absl::Status {
      if (!backends_.array_removal.remove) return NoFailover();
      ASSIGN_OR_RETURN(const auto uses, backends_.array_removal.remove(request->array(), request->force()));
      FillUses(uses, response);
      return absl::OkStatus();
    });
  }

  grpc::Status ListArrayUses(ServerContext*, const admin::v1::ListArrayUsesRequest* request,
                             admin::v1::ArrayUses* response) override {
    return AnswerRpc([&]() -> absl::Status {
      if (!backends_.array_removal.list_uses) return NoFailover();
      ASSIGN_OR_RETURN(const auto uses, backends_.array_removal.list_uses(request->array()));
      FillUses(uses, response);
      return absl::OkStatus();
    });
  }

  grpc::Status AddArray(ServerContext*, const admin::v1::AddArrayRequest* request,
                        admin::v1::AddArrayResponse*) override {
    return ToGrpcStatus(backends_.array_removal.add ? backends_.array_removal.add(request->array())
                                                    : NoFailover());
  }

  grpc::Status Backup(ServerContext* context, const admin::v1::BackupRequest* request,
                      grpc::ServerWriter<admin::v1::BackupProgress>* writer) override {
    if (!backends_.back_up) return ToGrpcStatus(NotHere());
    return ToGrpcStatus(backends_.back_up(request->folder(), [&](const BackupProgress& progress) {
      admin::v1::BackupProgress out;
      out.set_done_images(progress.done_images);
      out.set_images(progress.images);
      out.set_copied_bytes(progress.copied_bytes);
      out.set_bytes(progress.bytes);
      return !context->IsCancelled() && writer->Write(out);
    }));
  }

  grpc::Status HandOver(ServerContext* context, const admin::v1::HandOverRequest*,
                        grpc::ServerWriter<admin::v1::HandOverProgress>* writer) override {
    if (!backends_.hand_over) return ToGrpcStatus(NotHere());
    return AnswerHandOver(backends_.hand_over, *context, *writer);
  }

  grpc::Status Reassign(ServerContext*, const admin::v1::ReassignRequest* request,
                        admin::v1::ReassignResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      if (!backends_.reassign) return NotHere();
      ASSIGN_OR_RETURN(const Reassigned done, backends_.reassign({.from = ClusterId(request->from_cluster()),
                                                                  .to = ClusterId(request->to_cluster()),
                                                                  .end_grants = request->end_grants(),
                                                                  .only_check = request->dry_run(),
                                                                  .asked_by = OperatorHere()}));
      response->set_volumes(done.holdings.volumes);
      response->set_snapshots(done.holdings.snapshots);
      response->set_groups(done.holdings.groups);
      response->set_size_bytes(done.holdings.size_bytes);
      for (const NodeId& node : done.fenced) response->add_fenced_nodes(node.value());
      return absl::OkStatus();
    });
  }

 private:
  static absl::Status NoArray() {
    return absl::FailedPreconditionError(
        "this process serves no cluster's arrays: ask a controller (mode controller or all)");
  }

  // What concerns a pool is asked of the process that has it.
  static absl::Status NotHere() {
    return absl::FailedPreconditionError(
        "the array is another process's: run this where the array's agent runs, with its socket: on the "
        "storage host --endpoint unix:///run/lunkeeper/array-NAME.sock, or in the pod of the local array");
  }

  static absl::Status NoFailover() {
    return absl::FailedPreconditionError(
        "this is no controller with failover (failover.enabled), which is what knows who uses an array; "
        "elsewhere take the array out of the arrays file");
  }

  std::vector<NamedArray> AllArrays() const {
    return backends_.arrays != nullptr ? backends_.arrays->ListArrays() : std::vector<NamedArray>();
  }

  // The array that a command names, or the only one. FAILED_PRECONDITION, with the names to choose from.
  absl::StatusOr<std::shared_ptr<Array>> ArrayNamed(const std::string& name) const {
    const std::vector<NamedArray> all = AllArrays();
    if (all.empty()) return NoArray();
    if (name.empty() && all.size() == 1) return all.front().array;
    std::vector<std::string> names;
    for (const NamedArray& array : all) {
      if (array.name == name) return array.array;
      names.push_back(array.name);
    }
    return absl::FailedPreconditionError(
        absl::StrCat("there are arrays ", absl::StrJoin(names, ", "), ": name one of them with --array"));
  }

  static ArrayStatus DescribeArray(const NamedArray& array) {
    ArrayStatus out;
    // What was read before an error stays in the answer, beside the reason.
    const absl::Status filled = FillArray(*array.array, &out);
    out.set_name(array.name);
    out.set_not_serving(std::string(filled.message()));
    return out;
  }

  static absl::Status FillArray(Array& array, ArrayStatus* out) {
    ASSIGN_OR_RETURN(const PoolCapacity pool, array.volumes().GetCapacity());
    ASSIGN_OR_RETURN(const std::vector<Grant> grants, array.grants().ListGrants({}));
    ASSIGN_OR_RETURN(const SeenSessions seen, array.grants().ListSeenSessions());
    ASSIGN_OR_RETURN(const std::vector<FenceRecord> fences, array.fences().ListFences());
    out->set_total_bytes(pool.total_bytes);
    out->set_available_bytes(pool.available_bytes);
    // Sessions are counted into the grant that they use; a grant has at most a few.
    std::map<std::pair<VolumeId, NodeId>, admin::v1::GrantStatus*> by_grant;
    for (const Grant& grant : grants) {
      auto* status = by_grant[{grant.volume, grant.node}] = out->add_grants();
      status->set_volume(grant.volume.value());
      status->set_node(grant.node.value());
      status->set_access(ToText(grant.access));
      status->set_target_proves_itself(!grant.connection.target_chap.user.empty());
      status->set_portal(grant.connection.portal);
      status->set_owner(grant.owner == GrantOwner::kNode ? "node" : "orchestrator");
      status->set_generation(grant.generation);
    }
    for (const GrantSession& session : seen.sessions) {
      const auto status = by_grant.find({session.volume, session.node});
      if (status == by_grant.end()) continue;  // ended since
      status->second->set_sessions(status->second->sessions() + 1);
      status->second->set_reads(status->second->reads() + session.reads);
      status->second->set_writes(status->second->writes() + session.writes);
      status->second->set_read_bytes(status->second->read_bytes() + session.read_bytes);
      status->second->set_written_bytes(status->second->written_bytes() + session.written_bytes);
    }
    for (const FenceRecord& fence : fences) FillFence(fence, out->add_fences());
    for (const UnseenGrants& part : seen.unseen) out->add_unseen(part.why);
    return absl::OkStatus();
  }

  const Backends& backends_;
  const std::string mode_;
};

}  // namespace

std::unique_ptr<admin::v1::Admin::Service> MakeAdminService(const Backends* backends,
                                                            const std::string& mode) {
  return std::make_unique<AdminService>(backends, mode);
}

}  // namespace lunkeeper
