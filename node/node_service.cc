// Every RPC runs on a thread of its own (plugin/server.h) and may block there until its deadline:
// NodeStageVolume for as long as another node has the volume. The locks are by volume, so one volume that
// hangs delays no other; NodeGetVolumeStats takes none, since orchestrators ask for it while other calls run.
#include "node/node_service.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "base/status_macros.h"
#include "node/node_request.h"

namespace lunkeeper {
namespace {

// For callers that set no deadline; kubelet's own is two minutes as well.
constexpr absl::Duration kDefaultTime = absl::Minutes(2);

absl::Time DeadlineOf(const grpc::ServerContext* context) {
  if (context == nullptr) return absl::Now() + kDefaultTime;
  const std::chrono::system_clock::time_point deadline = context->deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::Now() + kDefaultTime;
  return absl::FromChrono(deadline);
}

void AddUsage(csi::v1::VolumeUsage::Unit unit, uint64_t total, uint64_t available, uint64_t used,
              csi::v1::NodeGetVolumeStatsResponse* response) {
  csi::v1::VolumeUsage* usage = response->add_usage();
  usage->set_unit(unit);
  usage->set_total(static_cast<int64_t>(total));
  usage->set_available(static_cast<int64_t>(available));
  usage->set_used(static_cast<int64_t>(used));
}

}  // namespace

std::pair<std::string, std::string> ReachableArray(const std::string& array_name) {
  return {absl::StrCat("array.lunkeeper.io/", array_name), "reachable"};
}

NodeService::NodeService(NodeServiceOptions options, Initiator& initiator, Initiator& prober,
                         Filesystem& filesystem, Mounter& mounter, GrantSource* grants)
    : options_(std::move(options)),
      stager_(options_.node, initiator, filesystem, mounter, grants),
      publisher_(initiator, filesystem, mounter, grants, stager_, options_.stages_for_publish),
      mounted_(initiator, filesystem, mounter),
      health_(prober, filesystem, mounter, grants),
      sweeper_(options_.grace_period, options_.idle_period, options_.doubt, stager_, initiator, mounter,
               grants, locks_) {}

absl::StatusOr<KeyedLock::Guard> NodeService::LockVolume(const VolumeId& volume) {
  auto guard = locks_.TryLock(volume.value());
  sweeper_.NoteCall(volume);
  if (guard.has_value()) return *std::move(guard);
  return absl::AbortedError(
      absl::StrCat("volume ", volume.value(), ": another call is working on it; try again when it is done"));
}

absl::Duration NodeService::LongestWait(const VolumeId& volume) {
  absl::MutexLock lock(&mutex_);
  return reported_holder_.erase(volume) == 0 ? options_.first_wait : absl::InfiniteDuration();
}

grpc::Status NodeService::NodeStageVolume(grpc::ServerContext* context,
                                          const csi::v1::NodeStageVolumeRequest* request,
                                          csi::v1::NodeStageVolumeResponse*) {
  return AnswerRpc([&]() -> absl::Status {
    ASSIGN_OR_RETURN(StageRequest stage, ParseStageRequest(*request, DeadlineOf(context)));
    ASSIGN_OR_RETURN(const auto guard, LockVolume(stage.volume));
    // Of several calls in a row, the first returns early and says which node has the volume, for people who
    // look at the pod; each later one waits as long as it may, for the fastest start.
    stage.longest_wait = LongestWait(stage.volume);
    const absl::Status status = stager_.StageVolume(stage);
    if (status.ok() || stage.published) return status;
    // The array may have granted the volume just when this call ended; nobody may ever ask for it again.
    sweeper_.GrantMayStillCome();
    if (absl::IsDeadlineExceeded(status)) {
      absl::MutexLock lock(&mutex_);
      reported_holder_.insert(stage.volume);
    }
    return status;
  });
}

grpc::Status NodeService::NodeUnstageVolume(grpc::ServerContext* context,
                                            const csi::v1::NodeUnstageVolumeRequest* request,
                                            csi::v1::NodeUnstageVolumeResponse*) {
  return AnswerRpc([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const VolumeId volume, ParseVolumeId(request->volume_id()));
    ASSIGN_OR_RETURN(const std::string path,
                     ParseUnmountPath(request->staging_target_path(), "staging_target_path"));
    {  // the next pod that waits for it learns anew which node has it
      absl::MutexLock lock(&mutex_);
      reported_holder_.erase(volume);
    }
    ASSIGN_OR_RETURN(const auto guard, LockVolume(volume));
    const absl::Status status = stager_.UnstageVolume(volume, path, DeadlineOf(context));
    // Perhaps only the grant is left, and a kubelet that is restarted now never asks again.
    if (!status.ok()) sweeper_.GrantMayStillCome();
    return status;
  });
}

grpc::Status NodeService::NodePublishVolume(grpc::ServerContext* context,
                                            const csi::v1::NodePublishVolumeRequest* request,
                                            csi::v1::NodePublishVolumeResponse*) {
  return AnswerRpc([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const PublishRequest publish, ParsePublishRequest(*request, DeadlineOf(context)));
    ASSIGN_OR_RETURN(const auto guard, LockVolume(publish.volume));
    const absl::Status status = publisher_.PublishVolume(publish);
    if (status.ok()) return status;
    sweeper_.NoteRefusal(publish.volume);
    sweeper_.GrantMayStillCome();  // it may have asked for one, to stage the volume
    return status;
  });
}

grpc::Status NodeService::NodeUnpublishVolume(grpc::ServerContext* context,
                                              const csi::v1::NodeUnpublishVolumeRequest* request,
                                              csi::v1::NodeUnpublishVolumeResponse*) {
  return ToGrpcStatus(Unpublish(*request, TargetPath::kRemoved, DeadlineOf(context)));
}

// CSI 0.3 alone: there the orchestrator makes the target path, and removes it.
grpc::Status NodeService::UnpublishKeepingTarget(grpc::ServerContext* context,
                                                 const csi::v1::NodeUnpublishVolumeRequest* request,
                                                 csi::v1::NodeUnpublishVolumeResponse*) {
  return ToGrpcStatus(Unpublish(*request, TargetPath::kKept, DeadlineOf(context)));
}

absl::Status NodeService::Unpublish(const csi::v1::NodeUnpublishVolumeRequest& request, TargetPath afterwards,
                                    absl::Time deadline) {
  ASSIGN_OR_RETURN(const VolumeId volume, ParseVolumeId(request.volume_id()));
  ASSIGN_OR_RETURN(const std::string path, ParseUnmountPath(request.target_path(), "target_path"));
  ASSIGN_OR_RETURN(const auto guard, LockVolume(volume));
  return publisher_.UnpublishVolume(volume, path, afterwards, deadline);
}

grpc::Status NodeService::NodeGetVolumeStats(grpc::ServerContext* context,
                                             const csi::v1::NodeGetVolumeStatsRequest* request,
                                             csi::v1::NodeGetVolumeStatsResponse* response) {
  return AnswerRpc([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const VolumeId volume, ParseVolumeId(request->volume_id()));
    ASSIGN_OR_RETURN(const std::string path, ParseUsagePath(*request));
    ASSIGN_OR_RETURN(const Usage usage, mounted_.GetUsage(volume, path, DeadlineOf(context)));
    AddUsage(csi::v1::VolumeUsage::BYTES, usage.total_bytes, usage.available_bytes, usage.used_bytes,
             response);
    // A raw device has none, and CSI wants the entry left out then.
    if (usage.total_inodes != 0) {
      AddUsage(csi::v1::VolumeUsage::INODES, usage.total_inodes, usage.free_inodes, usage.used_inodes,
               response);
    }
    return absl::OkStatus();
  });
}

grpc::Status NodeService::NodeGetVolumeHealth(grpc::ServerContext* context,
                                              const csi::v1::NodeGetVolumeHealthRequest* request,
                                              csi::v1::NodeGetVolumeHealthResponse* response) {
  // No lock of the volume: somebody asks for its health just when a call on it hangs.
  return AnswerRpc([&]() -> absl::Status {
    ASSIGN_OR_RETURN(HealthRequest asked, ParseHealthRequest(*request));
    asked.deadline = DeadlineOf(context);
    ASSIGN_OR_RETURN(const std::vector<HealthProblem> problems, health_.CheckVolume(asked));
    response->mutable_volume_health()->set_volume_id(asked.volume.value());
    for (const HealthProblem& problem : problems) {
      auto* entry = response->mutable_volume_health()->add_health_statuses();
      entry->set_status(problem.accessible ? csi::v1::DEGRADED : csi::v1::INACCESSIBLE);
      entry->set_reason(problem.reason);
      entry->set_message(problem.message);
    }
    return absl::OkStatus();
  });
}

grpc::Status NodeService::NodeGetStorageHealth(grpc::ServerContext*,
                                               const csi::v1::NodeGetStorageHealthRequest*,
                                               csi::v1::NodeGetStorageHealthResponse* response) {
  for (const HealthProblem& problem : health_.CheckStorage()) {
    auto* entry = response->add_backend_health();
    entry->set_status(problem.accessible ? csi::v1::STORAGE_DEGRADED : csi::v1::STORAGE_UNREACHABLE);
    entry->set_reason(problem.reason);
    entry->set_message(problem.message);
  }
  return grpc::Status::OK;
}

grpc::Status NodeService::NodeExpandVolume(grpc::ServerContext* context,
                                           const csi::v1::NodeExpandVolumeRequest* request,
                                           csi::v1::NodeExpandVolumeResponse* response) {
  return AnswerRpc([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const ExpandRequest expand, ParseExpandRequest(*request, DeadlineOf(context)));
    ASSIGN_OR_RETURN(const auto guard, LockVolume(expand.volume));
    ASSIGN_OR_RETURN(const uint64_t size_bytes, mounted_.ExpandVolume(expand));
    response->set_capacity_bytes(static_cast<int64_t>(size_bytes));
    return absl::OkStatus();
  });
}

grpc::Status NodeService::NodeGetCapabilities(grpc::ServerContext*,
                                              const csi::v1::NodeGetCapabilitiesRequest*,
                                              csi::v1::NodeGetCapabilitiesResponse* response) {
  using Rpc = csi::v1::NodeServiceCapability::RPC;
  for (const Rpc::Type type :
       {Rpc::STAGE_UNSTAGE_VOLUME, Rpc::GET_VOLUME_STATS, Rpc::EXPAND_VOLUME, Rpc::SINGLE_NODE_MULTI_WRITER,
        Rpc::GET_VOLUME_HEALTH, Rpc::GET_STORAGE_HEALTH}) {
    response->add_capabilities()->mutable_rpc()->set_type(type);
  }
  return grpc::Status::OK;
}

grpc::Status NodeService::NodeGetInfo(grpc::ServerContext*, const csi::v1::NodeGetInfoRequest*,
                                      csi::v1::NodeGetInfoResponse* response) {
  response->set_node_id(options_.node.value());
  // Kubernetes' scheduler places no pod on a node that has this many volumes.
  response->set_max_volumes_per_node(options_.max_volumes);
  for (const auto& [key, value] : options_.topology) {
    (*response->mutable_accessible_topology()->mutable_segments())[key] = value;
  }
  return grpc::Status::OK;
}

}  // namespace lunkeeper
