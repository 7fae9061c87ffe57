#include "node/node_service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/publish_context.h"
#include "node/paths.h"

namespace lunkeeper {
namespace {

constexpr size_t kLongestId = 128;  // CSI, "Size Limits"
constexpr absl::Duration kSweepTime = absl::Seconds(5);
// For callers that set no deadline.
constexpr absl::Duration kDefaultTime = absl::Minutes(2);

absl::Status Wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::StatusOr<VolumeId> ReadVolumeId(const std::string& id) {
  if (id.empty()) return Wrong("volume_id: is required");
  if (id.size() > kLongestId) return Wrong("volume_id: is longer than 128 bytes");
  const bool plain =
      std::all_of(id.begin(), id.end(), [](char c) { return absl::ascii_isgraph(c) && c != '/'; });
  if (!plain) return Wrong("volume_id: has a slash or characters that are not printable");
  return VolumeId(id);
}

absl::Time DeadlineOf(const grpc::ServerContext* context) {
  if (context == nullptr) return absl::Now() + kDefaultTime;
  const std::chrono::system_clock::time_point deadline = context->deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::Now() + kDefaultTime;
  return absl::FromChrono(deadline);
}

std::map<std::string, std::string> ToMap(const google::protobuf::Map<std::string, std::string>& map) {
  return {map.begin(), map.end()};
}

template <class Request>
absl::StatusOr<Capability> ReadCapability(const Request& request) {
  if (!request.has_volume_capability()) return Wrong("volume_capability: is required");
  return ParseCapability(request.volume_capability(), ToMap(request.volume_context()));
}

template <class Request>
absl::StatusOr<std::optional<Grant>> ReadPublishContext(const VolumeId& volume, const Request& request) {
  if (request.publish_context().empty()) return std::nullopt;
  ASSIGN_OR_RETURN(Grant grant, FromPublishContext(volume, ToMap(request.publish_context())));
  return std::optional<Grant>(std::move(grant));
}

absl::Status Busy(const VolumeId& volume) {
  return absl::AbortedError(
      absl::StrCat("volume ", volume.value(), ": another call is working on it; try again when it is done"));
}

// A directory that the orchestrator made: its parent is there too, or the field is wrong.
absl::StatusOr<std::string> ReadPath(const std::string& path, const char* field) {
  absl::StatusOr<std::string> resolved = ResolvePath(path, field);
  if (absl::IsNotFound(resolved.status())) return Wrong(std::string(resolved.status().message()));
  return resolved;
}

// A path that may be gone, parent and all: then there is nothing at it, and what was sent will do.
absl::StatusOr<std::string> ReadGonePath(const std::string& path, const char* field) {
  absl::StatusOr<std::string> resolved = ResolvePath(path, field);
  if (absl::IsNotFound(resolved.status())) return path;
  return resolved;
}

// A path where a volume is expected to be: one that cannot be is not found, but an absent one is an error.
template <class Request>
absl::StatusOr<std::string> ReadVolumePath(const Request& request) {
  const std::string& path = request.volume_path();
  if (path.empty() || path.size() > 4095) return Wrong("volume_path: is required, with at most 4095 bytes");
  absl::StatusOr<std::string> resolved = ResolvePath(path, "volume_path");
  if (!resolved.ok()) return absl::NotFoundError(resolved.status().message());
  // Optional, and not needed: what is mounted says where it is staged.
  const std::string& staging = request.staging_target_path();
  if (!staging.empty()) RETURN_IF_ERROR(CheckPath(staging, "staging_target_path"));
  return resolved;
}

absl::StatusOr<StageRequest> ReadStage(const csi::v1::NodeStageVolumeRequest& request, absl::Time deadline) {
  StageRequest stage;
  stage.deadline = deadline;
  ASSIGN_OR_RETURN(stage.volume, ReadVolumeId(request.volume_id()));
  ASSIGN_OR_RETURN(stage.capability, ReadCapability(request));
  ASSIGN_OR_RETURN(stage.staging_path, ReadPath(request.staging_target_path(), "staging_target_path"));
  ASSIGN_OR_RETURN(stage.published, ReadPublishContext(stage.volume, request));
  return stage;
}

absl::StatusOr<PublishRequest> ReadPublish(const csi::v1::NodePublishVolumeRequest& request,
                                           absl::Time deadline) {
  PublishRequest publish;
  publish.deadline = deadline;
  publish.read_only = request.readonly();
  ASSIGN_OR_RETURN(publish.volume, ReadVolumeId(request.volume_id()));
  ASSIGN_OR_RETURN(publish.capability, ReadCapability(request));
  ASSIGN_OR_RETURN(publish.target_path, ReadPath(request.target_path(), "target_path"));
  if (request.staging_target_path().empty()) {
    return absl::FailedPreconditionError("staging_target_path: is required; stage the volume first");
  }
  ASSIGN_OR_RETURN(publish.staging_path, ReadPath(request.staging_target_path(), "staging_target_path"));
  ASSIGN_OR_RETURN(publish.published, ReadPublishContext(publish.volume, request));
  return publish;
}

struct ExpandRequest {
  VolumeId volume;
  std::string path;
  uint64_t required_bytes = 0;
  uint64_t limit_bytes = 0;
};

absl::StatusOr<ExpandRequest> ReadExpand(const csi::v1::NodeExpandVolumeRequest& request) {
  ExpandRequest expand;
  ASSIGN_OR_RETURN(expand.volume, ReadVolumeId(request.volume_id()));
  const int64_t required = request.capacity_range().required_bytes();
  const int64_t limit = request.capacity_range().limit_bytes();
  if (required < 0 || limit < 0) return Wrong("capacity_range: must not be negative");
  if (limit != 0 && limit < required) return Wrong("capacity_range: limit_bytes is below required_bytes");
  expand.required_bytes = static_cast<uint64_t>(required);
  expand.limit_bytes = static_cast<uint64_t>(limit);
  if (request.has_volume_capability()) {
    RETURN_IF_ERROR(ParseCapability(request.volume_capability(), {}).status());
  }
  ASSIGN_OR_RETURN(expand.path, ReadVolumePath(request));
  return expand;
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

NodeService::NodeService(NodeServiceOptions options, Initiator& initiator, Filesystem& filesystem,
                         Mounter& mounter, GrantSource* grants)
    : options_(std::move(options)), volumes_(options_.node, initiator, filesystem, mounter, grants) {}

absl::Status NodeService::Stage(StageRequest request) {
  {
    absl::MutexLock lock(&mutex_);
    if (reported_.erase(request.volume) == 0) request.longest_wait = options_.first_wait;
  }
  const absl::Status status = volumes_.Stage(request);
  if (status.ok() || request.published) return status;
  absl::MutexLock lock(&mutex_);
  if (absl::IsDeadlineExceeded(status)) reported_.insert(request.volume);
  in_doubt_until_ = absl::Now() + kDoubt;
  return status;
}

void NodeService::ReturnUnusedGrants() {
  const absl::Time began = absl::Now();
  {
    absl::MutexLock lock(&mutex_);
    if (in_doubt_until_ == absl::InfinitePast()) return;
  }
  const absl::StatusOr<std::vector<VolumeId>> unused = volumes_.Unused(began + kSweepTime);
  absl::Status status = unused.status();
  for (const VolumeId& volume : unused.value_or(std::vector<VolumeId>())) {
    const auto guard = locks_.TryLock(volume.value());
    if (!guard) continue;  // a call is working on it, and sees to its grant
    LogInfo("node", "giving back a grant that is not used", {{"volume", volume.value()}});
    status.Update(volumes_.GiveBack(volume, began + kSweepTime));
  }
  if (!status.ok()) {
    LogWarn("node", "grants that are not used could not be given back; trying again",
            {{"error", std::string(status.message())}});
    return;
  }
  absl::MutexLock lock(&mutex_);
  if (began >= in_doubt_until_) in_doubt_until_ = absl::InfinitePast();
}

void NodeService::RemoveForgotten() {
  const absl::StatusOr<std::vector<VolumeId>> forgotten = volumes_.Forgotten();
  if (!forgotten.ok()) return;  // the data path does not answer: all is asked again
  std::map<VolumeId, absl::Time> since;
  for (const VolumeId& volume : *forgotten) {
    const absl::Time now = absl::Now();
    const auto known = forgotten_since_.find(volume);
    const absl::Time began = since[volume] = known == forgotten_since_.end() ? now : known->second;
    if (now - began < options_.grace_period) continue;
    const auto guard = locks_.TryLock(volume.value());
    if (!guard) continue;  // the orchestrator has not forgotten it
    const absl::Status removed = volumes_.RemoveForgotten(volume, now + kSweepTime);
    LogInfo("node",
            removed.ok() ? "removed a failed device that was left over" : "a failed device is left over",
            {{"volume", volume.value()}, {"error", std::string(removed.message())}});
    since[volume] = absl::Now();  // not again at once
  }
  forgotten_since_ = std::move(since);
}

grpc::Status NodeService::NodeStageVolume(grpc::ServerContext* context,
                                          const csi::v1::NodeStageVolumeRequest* request,
                                          csi::v1::NodeStageVolumeResponse*) {
  const absl::StatusOr<StageRequest> stage = ReadStage(*request, DeadlineOf(context));
  if (!stage.ok()) return ToGrpcStatus(stage.status());
  const auto guard = locks_.TryLock(stage->volume.value());
  return ToGrpcStatus(guard ? Stage(*stage) : Busy(stage->volume));
}

grpc::Status NodeService::NodeUnstageVolume(grpc::ServerContext* context,
                                            const csi::v1::NodeUnstageVolumeRequest* request,
                                            csi::v1::NodeUnstageVolumeResponse*) {
  const absl::StatusOr<VolumeId> volume = ReadVolumeId(request->volume_id());
  if (!volume.ok()) return ToGrpcStatus(volume.status());
  const auto path = ReadGonePath(request->staging_target_path(), "staging_target_path");
  if (!path.ok()) return ToGrpcStatus(path.status());
  {
    absl::MutexLock lock(&mutex_);
    reported_.erase(*volume);
  }
  const auto guard = locks_.TryLock(volume->value());
  return ToGrpcStatus(guard ? volumes_.Unstage(*volume, *path, DeadlineOf(context)) : Busy(*volume));
}

grpc::Status NodeService::NodePublishVolume(grpc::ServerContext* context,
                                            const csi::v1::NodePublishVolumeRequest* request,
                                            csi::v1::NodePublishVolumeResponse*) {
  const absl::StatusOr<PublishRequest> publish = ReadPublish(*request, DeadlineOf(context));
  if (!publish.ok()) return ToGrpcStatus(publish.status());
  const auto guard = locks_.TryLock(publish->volume.value());
  return ToGrpcStatus(guard ? volumes_.Publish(*publish) : Busy(publish->volume));
}

grpc::Status NodeService::NodeUnpublishVolume(grpc::ServerContext* context,
                                              const csi::v1::NodeUnpublishVolumeRequest* request,
                                              csi::v1::NodeUnpublishVolumeResponse*) {
  const absl::StatusOr<VolumeId> volume = ReadVolumeId(request->volume_id());
  if (!volume.ok()) return ToGrpcStatus(volume.status());
  const auto path = ReadGonePath(request->target_path(), "target_path");
  if (!path.ok()) return ToGrpcStatus(path.status());
  const auto guard = locks_.TryLock(volume->value());
  return ToGrpcStatus(guard ? volumes_.Unpublish(*volume, *path, DeadlineOf(context)) : Busy(*volume));
}

grpc::Status NodeService::NodeGetVolumeStats(grpc::ServerContext* context,
                                             const csi::v1::NodeGetVolumeStatsRequest* request,
                                             csi::v1::NodeGetVolumeStatsResponse* response) {
  const absl::StatusOr<VolumeId> volume = ReadVolumeId(request->volume_id());
  if (!volume.ok()) return ToGrpcStatus(volume.status());
  const absl::StatusOr<std::string> path = ReadVolumePath(*request);
  if (!path.ok()) return ToGrpcStatus(path.status());
  // No lock: it changes nothing, and orchestrators ask for it while other calls run.
  const absl::StatusOr<Usage> usage = volumes_.Stats(*volume, *path, DeadlineOf(context));
  if (!usage.ok()) return ToGrpcStatus(usage.status());
  AddUsage(csi::v1::VolumeUsage::BYTES, usage->total_bytes, usage->available_bytes, usage->used_bytes,
           response);
  if (usage->total_inodes != 0) {
    AddUsage(csi::v1::VolumeUsage::INODES, usage->total_inodes, usage->free_inodes, usage->used_inodes,
             response);
  }
  return grpc::Status::OK;
}

grpc::Status NodeService::NodeExpandVolume(grpc::ServerContext* context,
                                           const csi::v1::NodeExpandVolumeRequest* request,
                                           csi::v1::NodeExpandVolumeResponse* response) {
  const absl::StatusOr<ExpandRequest> expand = ReadExpand(*request);
  if (!expand.ok()) return ToGrpcStatus(expand.status());
  const auto guard = locks_.TryLock(expand->volume.value());
  if (!guard) return ToGrpcStatus(Busy(expand->volume));
  const absl::StatusOr<uint64_t> size = volumes_.Expand(expand->volume, expand->path, expand->required_bytes,
                                                        expand->limit_bytes, DeadlineOf(context));
  if (!size.ok()) return ToGrpcStatus(size.status());
  response->set_capacity_bytes(static_cast<int64_t>(*size));
  return grpc::Status::OK;
}

grpc::Status NodeService::NodeGetCapabilities(grpc::ServerContext*,
                                              const csi::v1::NodeGetCapabilitiesRequest*,
                                              csi::v1::NodeGetCapabilitiesResponse* response) {
  using Rpc = csi::v1::NodeServiceCapability::RPC;
  for (const Rpc::Type type : {Rpc::STAGE_UNSTAGE_VOLUME, Rpc::GET_VOLUME_STATS, Rpc::EXPAND_VOLUME,
                               Rpc::SINGLE_NODE_MULTI_WRITER}) {
    response->add_capabilities()->mutable_rpc()->set_type(type);
  }
  return grpc::Status::OK;
}

grpc::Status NodeService::NodeGetInfo(grpc::ServerContext*, const csi::v1::NodeGetInfoRequest*,
                                      csi::v1::NodeGetInfoResponse* response) {
  response->set_node_id(options_.node.value());
  response->set_max_volumes_per_node(options_.max_volumes);
  for (const auto& [key, value] : options_.topology) {
    (*response->mutable_accessible_topology()->mutable_segments())[key] = value;
  }
  return grpc::Status::OK;
}

}  // namespace lunkeeper
