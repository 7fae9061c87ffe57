#include "controller/controller_service.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/grpc_status.h"
#include "base/keyed_lock.h"
#include "base/status_macros.h"
#include "controller/placement.h"
#include "controller/request.h"
#include "controller/response.h"
#include "devices/array/array_router.h"
#include "devices/array/publish_context.h"
#include "devices/node_id.h"

namespace lunkeeper {
namespace {

using grpc::ServerContext;
namespace v1 = csi::v1;

constexpr size_t kLongestNodeId = 256;  // CSI 1.13, NodeGetInfoResponse.node_id

const v1::CapacityRange* RangeOf(const v1::CreateVolumeRequest& request) {
  return request.has_capacity_range() ? &request.capacity_range() : nullptr;
}

// Everything of a CreateVolumeRequest but the size, which depends on the source.
absl::StatusOr<VolumeSpec> ParseSpec(const v1::CreateVolumeRequest& request, const Parameters& parameters) {
  VolumeSpec spec;
  spec.name = request.name();
  spec.provisioning = parameters.provisioning;
  spec.durability = parameters.durability;
  if (!request.has_volume_content_source()) return spec;
  const v1::VolumeContentSource& source = request.volume_content_source();
  if (source.has_snapshot()) {
    RETURN_IF_ERROR(CheckId("volume_content_source.snapshot_id", source.snapshot().snapshot_id()));
    spec.source_snapshot = SnapshotId(source.snapshot().snapshot_id());
  } else if (source.has_volume()) {
    RETURN_IF_ERROR(CheckId("volume_content_source.volume_id", source.volume().volume_id()));
    spec.source_volume = VolumeId(source.volume().volume_id());
  } else {
    return absl::InvalidArgumentError("volume_content_source: want a snapshot or a volume");
  }
  return spec;
}

bool SameButSize(VolumeSpec a, const VolumeSpec& b) {
  a.size_bytes = b.size_bytes;
  return a == b;
}

class ControllerService final : public v1::Controller::Service {
 public:
  ControllerService(Arrays& arrays, ControllerOptions options)
      : arrays_(arrays),
        volumes_(MakeVolumeRouter(arrays)),
        grants_(MakeGrantRouter(arrays)),
        options_(options) {}

  grpc::Status CreateVolume(ServerContext*, const v1::CreateVolumeRequest* request,
                            v1::CreateVolumeResponse* response) override {
    return ToGrpcStatus(Create(*request, response->mutable_volume()));
  }
  grpc::Status DeleteVolume(ServerContext*, const v1::DeleteVolumeRequest* request,
                            v1::DeleteVolumeResponse*) override {
    return ToGrpcStatus(Delete(*request));
  }
  grpc::Status ControllerPublishVolume(ServerContext*, const v1::ControllerPublishVolumeRequest* request,
                                       v1::ControllerPublishVolumeResponse* response) override {
    return ToGrpcStatus(Publish(*request, response));
  }
  grpc::Status ControllerUnpublishVolume(ServerContext*, const v1::ControllerUnpublishVolumeRequest* request,
                                         v1::ControllerUnpublishVolumeResponse*) override {
    return ToGrpcStatus(Unpublish(*request));
  }
  grpc::Status ValidateVolumeCapabilities(ServerContext*,
                                          const v1::ValidateVolumeCapabilitiesRequest* request,
                                          v1::ValidateVolumeCapabilitiesResponse* response) override {
    return ToGrpcStatus(Validate(*request, response));
  }
  grpc::Status ListVolumes(ServerContext*, const v1::ListVolumesRequest* request,
                           v1::ListVolumesResponse* response) override {
    return ToGrpcStatus(List(*request, response));
  }
  grpc::Status GetCapacity(ServerContext*, const v1::GetCapacityRequest* request,
                           v1::GetCapacityResponse* response) override {
    return ToGrpcStatus(Capacity(*request, response));
  }
  grpc::Status ControllerGetCapabilities(ServerContext*, const v1::ControllerGetCapabilitiesRequest*,
                                         v1::ControllerGetCapabilitiesResponse* response) override {
    FillCapabilities(response);
    return grpc::Status::OK;
  }
  grpc::Status CreateSnapshot(ServerContext*, const v1::CreateSnapshotRequest* request,
                              v1::CreateSnapshotResponse* response) override {
    return ToGrpcStatus(TakeSnapshot(*request, response->mutable_snapshot()));
  }
  grpc::Status DeleteSnapshot(ServerContext*, const v1::DeleteSnapshotRequest* request,
                              v1::DeleteSnapshotResponse*) override {
    return ToGrpcStatus(DropSnapshot(*request));
  }
  grpc::Status ListSnapshots(ServerContext*, const v1::ListSnapshotsRequest* request,
                             v1::ListSnapshotsResponse* response) override {
    return ToGrpcStatus(ListOfSnapshots(*request, response));
  }
  grpc::Status GetSnapshot(ServerContext*, const v1::GetSnapshotRequest* request,
                           v1::GetSnapshotResponse* response) override {
    return ToGrpcStatus(OneSnapshot(*request, response->mutable_snapshot()));
  }
  grpc::Status ControllerExpandVolume(ServerContext*, const v1::ControllerExpandVolumeRequest* request,
                                      v1::ControllerExpandVolumeResponse* response) override {
    return ToGrpcStatus(Expand(*request, response));
  }
  grpc::Status ControllerGetVolume(ServerContext*, const v1::ControllerGetVolumeRequest* request,
                                   v1::ControllerGetVolumeResponse* response) override {
    return ToGrpcStatus(GetOne(*request, response));
  }

 private:
  absl::StatusOr<KeyedLock::Guard> Lock(const std::string& what);

  absl::Status Create(const v1::CreateVolumeRequest& request, v1::Volume* volume);
  absl::StatusOr<NamedArray> PlaceFor(const v1::CreateVolumeRequest& request, const VolumeSpec& spec,
                                      const Parameters& parameters);
  absl::StatusOr<uint64_t> SourceBytes(const VolumeSpec& spec);
  absl::StatusOr<Volume> FindMadeBefore(VolumeStore& store, const VolumeSpec& spec,
                                        const v1::CapacityRange* range);
  absl::Status Delete(const v1::DeleteVolumeRequest& request);
  absl::Status Publish(const v1::ControllerPublishVolumeRequest& request,
                       v1::ControllerPublishVolumeResponse* response);
  absl::Status ExplainRefusal(const GrantRequest& request, const absl::Status& refusal);
  absl::Status Unpublish(const v1::ControllerUnpublishVolumeRequest& request);
  absl::Status Validate(const v1::ValidateVolumeCapabilitiesRequest& request,
                        v1::ValidateVolumeCapabilitiesResponse* response);
  absl::Status List(const v1::ListVolumesRequest& request, v1::ListVolumesResponse* response);
  absl::Status GetOne(const v1::ControllerGetVolumeRequest& request,
                      v1::ControllerGetVolumeResponse* response);
  absl::Status Capacity(const v1::GetCapacityRequest& request, v1::GetCapacityResponse* response);
  absl::Status Expand(const v1::ControllerExpandVolumeRequest& request,
                      v1::ControllerExpandVolumeResponse* response);
  absl::Status TakeSnapshot(const v1::CreateSnapshotRequest& request, v1::Snapshot* snapshot);
  absl::Status DropSnapshot(const v1::DeleteSnapshotRequest& request);
  absl::Status ListOfSnapshots(const v1::ListSnapshotsRequest& request, v1::ListSnapshotsResponse* response);
  absl::Status OneSnapshot(const v1::GetSnapshotRequest& request, v1::Snapshot* snapshot);

  Arrays& arrays_;
  // Of all arrays: the id says which one is meant.
  const std::unique_ptr<VolumeStore> volumes_;
  const std::unique_ptr<GrantStore> grants_;
  const ControllerOptions options_;
  KeyedLock running_;  // "volume <name or id>", "snapshot <name or id>", "grant <volume> <node>"
};

absl::StatusOr<KeyedLock::Guard> ControllerService::Lock(const std::string& what) {
  auto guard = running_.TryLock(what);
  if (!guard.has_value())
    return absl::AbortedError(absl::StrCat(what, ": another call is at work on it: try again"));
  return *std::move(guard);
}

absl::Status ControllerService::Create(const v1::CreateVolumeRequest& request, v1::Volume* volume) {
  RETURN_IF_ERROR(CheckName(request.name()));
  RETURN_IF_ERROR(CheckCapabilities(request.volume_capabilities()));
  ASSIGN_OR_RETURN(const Parameters parameters, ParseParameters(request.parameters()));
  RETURN_IF_ERROR(CheckPool(arrays_.ListArrays(), parameters.pool));
  RETURN_IF_ERROR(CheckNoParameters("mutable_parameters", request.mutable_parameters()));
  ASSIGN_OR_RETURN(VolumeSpec spec, ParseSpec(request, parameters));
  ASSIGN_OR_RETURN(const NamedArray place, PlaceFor(request, spec, parameters));

  ASSIGN_OR_RETURN(const auto guard, Lock(absl::StrCat("volume ", spec.name)));
  ASSIGN_OR_RETURN(const uint64_t source_bytes, SourceBytes(spec));
  ASSIGN_OR_RETURN(spec.size_bytes, ChooseSize(RangeOf(request), source_bytes));
  absl::StatusOr<Volume> made = place.array->volumes().CreateVolume(spec);
  if (absl::IsAlreadyExists(made.status()))
    made = FindMadeBefore(place.array->volumes(), spec, RangeOf(request));
  RETURN_IF_ERROR(made.status());
  FillVolume(*made, volume);
  if (!parameters.fs_type.empty()) (*volume->mutable_volume_context())["fsType"] = parameters.fs_type;
  return absl::OkStatus();
}

// A clone begins on its source's array.
absl::StatusOr<NamedArray> ControllerService::PlaceFor(const v1::CreateVolumeRequest& request,
                                                       const VolumeSpec& spec, const Parameters& parameters) {
  const std::string& source =
      spec.source_volume.empty() ? spec.source_snapshot.value() : spec.source_volume.value();
  if (source.empty())
    return ChooseArray(arrays_.ListArrays(), parameters.array, request.accessibility_requirements());
  RETURN_IF_ERROR(FindArrayOf(arrays_, source).status());
  const std::string name = ArrayNameIn(source);
  if (!parameters.array.empty() && parameters.array != name) {
    return absl::InvalidArgumentError(absl::StrCat("parameter array: ", source, " is on array ", name,
                                                   ", and cannot be copied to ", parameters.array));
  }
  return ChooseArray(arrays_.ListArrays(), name, request.accessibility_requirements());
}

absl::StatusOr<uint64_t> ControllerService::SourceBytes(const VolumeSpec& spec) {
  if (!spec.source_volume.empty()) {
    ASSIGN_OR_RETURN(const Volume source, volumes_->GetVolume(spec.source_volume));
    return source.spec.size_bytes;
  }
  if (spec.source_snapshot.empty()) return 0;
  ASSIGN_OR_RETURN(const Snapshot source, volumes_->GetSnapshot(spec.source_snapshot));
  if (source.ready) return source.size_bytes;
  return absl::UnavailableError(absl::StrCat("create volume ", spec.name, ": snapshot ", source.id.value(),
                                             " is still being copied: try again"));
}

// The array compares sizes exactly, but a volume that has grown since, or that fits the range all the same,
// is the one that was asked for. Rare, so it may look at every volume.
absl::StatusOr<Volume> ControllerService::FindMadeBefore(VolumeStore& store, const VolumeSpec& spec,
                                                         const v1::CapacityRange* range) {
  std::string token;
  do {
    ASSIGN_OR_RETURN(const Page<Volume> page, store.ListVolumes(token, 0));
    for (const Volume& volume : page.items) {
      if (volume.spec.name != spec.name) continue;
      if (SameButSize(volume.spec, spec) && Satisfies(range, volume.spec.size_bytes)) return volume;
      return absl::AlreadyExistsError(absl::StrCat(
          "create volume ", spec.name, ": volume ", volume.id.value(), " has that name and ",
          volume.spec.size_bytes,
          " bytes, but not the size, parameters or source asked for: use another name or delete it"));
    }
    token = page.next_token;
  } while (!token.empty());
  return absl::AbortedError(absl::StrCat("create volume ", spec.name, ": it is being deleted: try again"));
}

absl::Status ControllerService::Delete(const v1::DeleteVolumeRequest& request) {
  RETURN_IF_ERROR(CheckId("volume_id", request.volume_id()));
  ASSIGN_OR_RETURN(const auto guard, Lock(absl::StrCat("volume ", request.volume_id())));
  return volumes_->DeleteVolume(VolumeId(request.volume_id()));
}

absl::Status ControllerService::Publish(const v1::ControllerPublishVolumeRequest& request,
                                        v1::ControllerPublishVolumeResponse* response) {
  RETURN_IF_ERROR(CheckId("volume_id", request.volume_id()));
  RETURN_IF_ERROR(CheckId("node_id", request.node_id(), kLongestNodeId));
  RETURN_IF_ERROR(CheckCapability(request.volume_capability()));
  if (const std::string why = Unsupported(request.volume_capability()); !why.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("volume_capability: ", why));
  }
  RETURN_IF_ERROR(CheckMap("volume_context", request.volume_context()));
  if (!IsNodeId(request.node_id())) {
    return absl::NotFoundError(absl::StrCat("node ", request.node_id(), ": no node of ours has such an id"));
  }
  GrantRequest grant_request;
  grant_request.volume = VolumeId(request.volume_id());
  grant_request.node = NodeId(request.node_id());
  grant_request.access = AccessFor(request.volume_capability(), request.readonly());
  grant_request.owner = GrantOwner::kOrchestrator;
  grant_request.most = options_.max_volumes_per_node;

  ASSIGN_OR_RETURN(const auto guard,
                   Lock(absl::StrCat("grant ", request.volume_id(), " ", request.node_id())));
  const absl::StatusOr<Grant> grant = grants_->AcquireGrant(grant_request, absl::ZeroDuration());
  if (!grant.ok()) return ExplainRefusal(grant_request, grant.status());
  const PublishContext context = ToPublishContext(*grant);
  response->mutable_publish_context()->insert(context.begin(), context.end());
  return absl::OkStatus();
}

// The array says FAILED_PRECONDITION when the node has the volume with another access; CSI wants
// ALREADY_EXISTS then.
absl::Status ControllerService::ExplainRefusal(const GrantRequest& request, const absl::Status& refusal) {
  if (!absl::IsFailedPrecondition(refusal)) return refusal;
  ASSIGN_OR_RETURN(const std::vector<Grant> grants, grants_->ListGrants({request.volume, request.node}));
  if (grants.empty() || grants.front().access == request.access) return refusal;
  return absl::AlreadyExistsError(refusal.message());
}

absl::Status ControllerService::Unpublish(const v1::ControllerUnpublishVolumeRequest& request) {
  RETURN_IF_ERROR(CheckId("volume_id", request.volume_id()));
  const VolumeId volume(request.volume_id());
  std::vector<NodeId> nodes;
  if (!request.node_id().empty()) {
    RETURN_IF_ERROR(CheckId("node_id", request.node_id(), kLongestNodeId));
    nodes.emplace_back(request.node_id());
  } else {  // from every node
    ASSIGN_OR_RETURN(const std::vector<Grant> grants, grants_->ListGrants({volume, {}}));
    for (const Grant& grant : grants) nodes.push_back(grant.node);
  }
  for (const NodeId& node : nodes) {
    ASSIGN_OR_RETURN(const auto guard, Lock(absl::StrCat("grant ", volume.value(), " ", node.value())));
    RETURN_IF_ERROR(grants_->ReleaseGrant(volume, node, GrantOwner::kOrchestrator, kAnyGeneration));
  }
  return absl::OkStatus();
}

absl::Status ControllerService::Validate(const v1::ValidateVolumeCapabilitiesRequest& request,
                                         v1::ValidateVolumeCapabilitiesResponse* response) {
  RETURN_IF_ERROR(CheckId("volume_id", request.volume_id()));
  RETURN_IF_ERROR(CheckMap("volume_context", request.volume_context()));
  if (request.volume_capabilities().empty())
    return absl::InvalidArgumentError("volume_capabilities: required, but empty");
  for (const v1::VolumeCapability& capability : request.volume_capabilities()) {
    RETURN_IF_ERROR(CheckCapability(capability));
    if (std::string why = Unsupported(capability); !why.empty()) response->set_message(std::move(why));
  }
  ASSIGN_OR_RETURN(const Parameters parameters, ParseParameters(request.parameters()));
  RETURN_IF_ERROR(CheckNoParameters("mutable_parameters", request.mutable_parameters()));
  ASSIGN_OR_RETURN(const Volume volume, volumes_->GetVolume(VolumeId(request.volume_id())));
  const bool elsewhere = !parameters.array.empty() && parameters.array != ArrayNameIn(volume.id.value());
  if (request.parameters_size() != 0 && (elsewhere || parameters.provisioning != volume.spec.provisioning ||
                                         parameters.durability != volume.spec.durability)) {
    response->set_message("the volume was made with other parameters");
  }
  if (!response->message().empty()) return absl::OkStatus();
  auto* confirmed = response->mutable_confirmed();
  *confirmed->mutable_volume_context() = request.volume_context();
  *confirmed->mutable_volume_capabilities() = request.volume_capabilities();
  *confirmed->mutable_parameters() = request.parameters();
  return absl::OkStatus();
}

absl::Status ControllerService::List(const v1::ListVolumesRequest& request,
                                     v1::ListVolumesResponse* response) {
  ASSIGN_OR_RETURN(const size_t limit, ParseMaxEntries(request.max_entries()));
  ASSIGN_OR_RETURN(const Page<Volume> page, volumes_->ListVolumes(request.starting_token(), limit));
  ASSIGN_OR_RETURN(const std::vector<Grant> grants, grants_->ListGrants({}));
  std::multimap<VolumeId, NodeId> published;
  for (const Grant& grant : grants) published.emplace(grant.volume, grant.node);
  for (const Volume& volume : page.items) {
    auto* entry = response->add_entries();
    FillVolume(volume, entry->mutable_volume());
    auto* status = entry->mutable_status();
    const auto [begin, end] = published.equal_range(volume.id);
    for (auto node = begin; node != end; ++node) status->add_published_node_ids(node->second.value());
  }
  response->set_next_token(page.next_token);
  return absl::OkStatus();
}

absl::Status ControllerService::GetOne(const v1::ControllerGetVolumeRequest& request,
                                       v1::ControllerGetVolumeResponse* response) {
  RETURN_IF_ERROR(CheckId("volume_id", request.volume_id()));
  ASSIGN_OR_RETURN(const Volume volume, volumes_->GetVolume(VolumeId(request.volume_id())));
  ASSIGN_OR_RETURN(const std::vector<Grant> grants, grants_->ListGrants({volume.id, {}}));
  FillVolume(volume, response->mutable_volume());
  auto* status = response->mutable_status();
  for (const Grant& grant : grants) status->add_published_node_ids(grant.node.value());
  return absl::OkStatus();
}

absl::Status ControllerService::Capacity(const v1::GetCapacityRequest& request,
                                         v1::GetCapacityResponse* response) {
  bool possible = true;
  for (const v1::VolumeCapability& capability : request.volume_capabilities()) {
    RETURN_IF_ERROR(CheckCapability(capability));
    if (!Unsupported(capability).empty()) possible = false;
  }
  ASSIGN_OR_RETURN(const Parameters parameters, ParseParameters(request.parameters()));
  RETURN_IF_ERROR(CheckPool(arrays_.ListArrays(), parameters.pool));
  v1::TopologyRequirement requirement;
  if (request.has_accessible_topology()) *requirement.add_requisite() = request.accessible_topology();
  const absl::StatusOr<NamedArray> place = ChooseArray(arrays_.ListArrays(), parameters.array, requirement);
  // A place or a use we cannot serve has no capacity.
  if (!possible || absl::IsResourceExhausted(place.status())) return absl::OkStatus();
  RETURN_IF_ERROR(place.status());
  ASSIGN_OR_RETURN(const PoolCapacity pool, place->array->volumes().GetCapacity());
  FillCapacity(pool, response);
  return absl::OkStatus();
}

absl::Status ControllerService::Expand(const v1::ControllerExpandVolumeRequest& request,
                                       v1::ControllerExpandVolumeResponse* response) {
  RETURN_IF_ERROR(CheckId("volume_id", request.volume_id()));
  if (!request.has_capacity_range()) return absl::InvalidArgumentError("capacity_range: required");
  if (request.has_volume_capability()) {
    RETURN_IF_ERROR(CheckCapability(request.volume_capability()));
    if (const std::string why = Unsupported(request.volume_capability()); !why.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("volume_capability: ", why));
    }
  }
  ASSIGN_OR_RETURN(const auto guard, Lock(absl::StrCat("volume ", request.volume_id())));
  ASSIGN_OR_RETURN(const Volume before, volumes_->GetVolume(VolumeId(request.volume_id())));
  // A volume never shrinks, so its size now is the least there is.
  ASSIGN_OR_RETURN(const uint64_t size, ChooseSize(&request.capacity_range(), before.spec.size_bytes));
  ASSIGN_OR_RETURN(const Volume after, volumes_->ExpandVolume(before.id, size));
  response->set_capacity_bytes(static_cast<int64_t>(after.spec.size_bytes));
  response->set_node_expansion_required(
      true);  // the block device has to grow too, with or without a file system
  return absl::OkStatus();
}

absl::Status ControllerService::TakeSnapshot(const v1::CreateSnapshotRequest& request,
                                             v1::Snapshot* snapshot) {
  RETURN_IF_ERROR(CheckName(request.name()));
  RETURN_IF_ERROR(CheckId("source_volume_id", request.source_volume_id()));
  RETURN_IF_ERROR(CheckNoParameters("parameters", request.parameters()));
  RETURN_IF_ERROR(
      CheckAccessibility(request.accessibility_requirements(), ArrayNameIn(request.source_volume_id())));
  ASSIGN_OR_RETURN(const auto guard, Lock(absl::StrCat("snapshot ", request.name())));
  ASSIGN_OR_RETURN(const Snapshot taken,
                   volumes_->CreateSnapshot(request.name(), VolumeId(request.source_volume_id())));
  FillSnapshot(taken, snapshot);
  return absl::OkStatus();
}

absl::Status ControllerService::DropSnapshot(const v1::DeleteSnapshotRequest& request) {
  RETURN_IF_ERROR(CheckId("snapshot_id", request.snapshot_id()));
  ASSIGN_OR_RETURN(const auto guard, Lock(absl::StrCat("snapshot ", request.snapshot_id())));
  return volumes_->DeleteSnapshot(SnapshotId(request.snapshot_id()));
}

absl::Status ControllerService::ListOfSnapshots(const v1::ListSnapshotsRequest& request,
                                                v1::ListSnapshotsResponse* response) {
  ASSIGN_OR_RETURN(const size_t limit, ParseMaxEntries(request.max_entries()));
  if (!request.source_volume_id().empty())
    RETURN_IF_ERROR(CheckId("source_volume_id", request.source_volume_id()));
  const VolumeId source(request.source_volume_id());
  if (!request.snapshot_id().empty()) {  // that one, or none
    RETURN_IF_ERROR(CheckId("snapshot_id", request.snapshot_id()));
    const absl::StatusOr<Snapshot> snapshot = volumes_->GetSnapshot(SnapshotId(request.snapshot_id()));
    if (absl::IsNotFound(snapshot.status())) return absl::OkStatus();
    RETURN_IF_ERROR(snapshot.status());
    if (!source.empty() && snapshot->source != source) return absl::OkStatus();
    FillSnapshot(*snapshot, response->add_entries()->mutable_snapshot());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Page<Snapshot> page,
                   volumes_->ListSnapshots(source, request.starting_token(), limit));
  for (const Snapshot& snapshot : page.items)
    FillSnapshot(snapshot, response->add_entries()->mutable_snapshot());
  response->set_next_token(page.next_token);
  return absl::OkStatus();
}

absl::Status ControllerService::OneSnapshot(const v1::GetSnapshotRequest& request, v1::Snapshot* snapshot) {
  RETURN_IF_ERROR(CheckId("snapshot_id", request.snapshot_id()));
  ASSIGN_OR_RETURN(const Snapshot found, volumes_->GetSnapshot(SnapshotId(request.snapshot_id())));
  FillSnapshot(found, snapshot);
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<v1::Controller::Service> MakeControllerService(Arrays& arrays, ControllerOptions options) {
  return std::make_unique<ControllerService>(arrays, options);
}

}  // namespace lunkeeper
