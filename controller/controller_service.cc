// Each RPC is one function: it checks the request (request.h), takes the lock of the object that it changes,
// calls the array, and fills in the response (response.h). They run on gRPC's threads, each for as long as
// its array takes. The locks are of this process alone. They only save an array from calls that orchestrators
// repeat too early; of two controllers at once, the array lets one through.
//
// A controller that is killed in the middle of a call has changed an array, or not; the orchestrator repeats
// the call, and the array answers a repeated change with what it did before.
#include "controller/controller_service.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/grpc_status.h"
#include "base/keyed_lock.h"
#include "base/status_macros.h"
#include "controller/mutable_parameters.h"
#include "controller/placement.h"
#include "controller/request.h"
#include "controller/response.h"
#include "controller/volume_creator.h"
#include "controller/volume_health.h"
#include "devices/array/array_router.h"
#include "devices/array/publish_context.h"
#include "devices/node_id.h"

namespace lunkeeper {
namespace {

using grpc::ServerContext;
namespace v1 = csi::v1;

constexpr size_t kLongestNodeId = 256;  // CSI 1.13, NodeGetInfoResponse.node_id

class ControllerService final : public v1::Controller::Service {
 public:
  ControllerService(Arrays& arrays, ControllerOptions options)
      : arrays_(arrays),
        volumes_(MakeVolumeRouter(arrays)),
        grants_(MakeGrantRouter(arrays)),
        creator_(arrays, *volumes_),
        options_(options) {}

  // The lock is by name, since two calls for one name must not both find that there is no such volume yet.
  grpc::Status CreateVolume(ServerContext*, const v1::CreateVolumeRequest* request,
                            v1::CreateVolumeResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckName(request->name()));
      RETURN_IF_ERROR(CheckCapabilities(request->volume_capabilities()));
      ASSIGN_OR_RETURN(const VolumeParameters parameters, ParseParameters(request->parameters()));
      RETURN_IF_ERROR(CheckPool(arrays_.ListArrays(), parameters.pool));
      ASSIGN_OR_RETURN(const VolumeChange change, ParseMutableParameters(request->mutable_parameters()));
      ASSIGN_OR_RETURN(const VolumeSpec spec, ParseVolumeSpec(*request, parameters));
      ASSIGN_OR_RETURN(const auto guard, LockObject(absl::StrCat("volume ", spec.name)));
      ASSIGN_OR_RETURN(const NamedArray place, creator_.ChoosePlace(*request, spec, parameters));
      const v1::CapacityRange* range = request->has_capacity_range() ? &request->capacity_range() : nullptr;
      ASSIGN_OR_RETURN(const Volume made, creator_.CreateOnce(place.array->volumes(), spec, change, range));
      FillVolume(made, response->mutable_volume());
      if (!spec.fs_type.empty())
        (*response->mutable_volume()->mutable_volume_context())["fsType"] = spec.fs_type;
      return absl::OkStatus();
    });
  }

  // OK for a volume that does not exist, as CSI asks; the array refuses one that is granted to a node.
  grpc::Status DeleteVolume(ServerContext*, const v1::DeleteVolumeRequest* request,
                            v1::DeleteVolumeResponse*) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("volume_id", request->volume_id()));
      ASSIGN_OR_RETURN(const auto guard, LockObject(absl::StrCat("volume ", request->volume_id())));
      return volumes_->DeleteVolume(VolumeId(request->volume_id()));
    });
  }

  // Never waits for another node's grant: CSI wants FAILED_PRECONDITION at once, naming the node that has it.
  grpc::Status ControllerPublishVolume(ServerContext*, const v1::ControllerPublishVolumeRequest* request,
                                       v1::ControllerPublishVolumeResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("volume_id", request->volume_id()));
      RETURN_IF_ERROR(CheckId("node_id", request->node_id(), kLongestNodeId));
      RETURN_IF_ERROR(CheckCapability(request->volume_capability()));
      if (const std::string why = WhyUnsupported(request->volume_capability()); !why.empty()) {
        return absl::InvalidArgumentError(absl::StrCat("volume_capability: ", why));
      }
      RETURN_IF_ERROR(CheckMap("volume_context", request->volume_context()));
      // Checked here, since to an array any text could be the id of a node that has yet to come.
      if (!IsNodeId(request->node_id())) {
        return absl::NotFoundError(
            absl::StrCat("node ", request->node_id(), ": no node of ours has such an id"));
      }
      GrantRequest grant_request;
      grant_request.volume = VolumeId(request->volume_id());
      grant_request.node = NodeId(request->node_id());
      grant_request.access = AccessFor(request->volume_capability(), request->readonly());
      grant_request.owner = GrantOwner::kOrchestrator;
      grant_request.most = options_.max_volumes_per_node;
      grant_request.mode = ModeOf(request->volume_capability());

      ASSIGN_OR_RETURN(const auto guard,
                       LockObject(absl::StrCat("grant ", request->volume_id(), " ", request->node_id())));
      RETURN_IF_ERROR(CheckMadeFor(grant_request.volume, request->volume_capability()));
      const absl::StatusOr<Grant> grant = grants_->AcquireGrant(grant_request, absl::ZeroDuration());
      if (!grant.ok()) return ExplainRefusal(grant_request, grant.status());
      const PublishContext context = ToPublishContext(*grant);
      response->mutable_publish_context()->insert(context.begin(), context.end());
      return absl::OkStatus();
    });
  }

  // Releases what ControllerPublishVolume acquired, and nothing that a node acquired for itself. Without a
  // node id it does so for every node, as the specification asks.
  grpc::Status ControllerUnpublishVolume(ServerContext*, const v1::ControllerUnpublishVolumeRequest* request,
                                         v1::ControllerUnpublishVolumeResponse*) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("volume_id", request->volume_id()));
      const VolumeId volume(request->volume_id());
      std::vector<NodeId> nodes;
      if (!request->node_id().empty()) {
        RETURN_IF_ERROR(CheckId("node_id", request->node_id(), kLongestNodeId));
        nodes.emplace_back(request->node_id());
      } else {  // from every node
        ASSIGN_OR_RETURN(const std::vector<Grant> grants, grants_->ListGrants({volume, {}}));
        for (const Grant& grant : grants) nodes.push_back(grant.node);
      }
      for (const NodeId& node : nodes) {
        ASSIGN_OR_RETURN(const auto guard,
                         LockObject(absl::StrCat("grant ", volume.value(), " ", node.value())));
        // An orchestrator knows of no generations. The owner already tells its grant from one of the node's
        // own.
        RETURN_IF_ERROR(grants_->ReleaseGrant(volume, node, GrantOwner::kOrchestrator, kAnyGeneration));
      }
      return absl::OkStatus();
    });
  }

  // CSI answers OK in both cases: `confirmed` is set only if everything fits, else `message` says what does
  // not.
  grpc::Status ValidateVolumeCapabilities(ServerContext*,
                                          const v1::ValidateVolumeCapabilitiesRequest* request,
                                          v1::ValidateVolumeCapabilitiesResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("volume_id", request->volume_id()));
      RETURN_IF_ERROR(CheckMap("volume_context", request->volume_context()));
      if (request->volume_capabilities().empty())
        return absl::InvalidArgumentError("volume_capabilities: required, but empty");
      for (const v1::VolumeCapability& capability : request->volume_capabilities()) {
        RETURN_IF_ERROR(CheckCapability(capability));
        if (std::string why = WhyUnsupported(capability); !why.empty()) response->set_message(std::move(why));
      }
      ASSIGN_OR_RETURN(const VolumeParameters parameters, ParseParameters(request->parameters()));
      ASSIGN_OR_RETURN(const VolumeChange change, ParseMutableParameters(request->mutable_parameters()));
      ASSIGN_OR_RETURN(const Volume volume, volumes_->GetVolume(VolumeId(request->volume_id())));
      for (const v1::VolumeCapability& capability : request->volume_capabilities()) {
        if (std::string why = WhyNotMadeFor(volume.spec, capability); !why.empty())
          response->set_message(std::move(why));
      }
      // Only parameters that the request names are compared: without any, the volume fits.
      if (request->parameters_size() != 0 && !WasMadeWith(volume, parameters, change))
        response->set_message("the volume was made with other parameters");
      if (WithChange(volume.spec, change) != volume.spec)
        response->set_message("the volume has other mutable parameters");
      if (!response->message().empty()) return absl::OkStatus();
      auto* confirmed = response->mutable_confirmed();
      *confirmed->mutable_volume_context() = request->volume_context();
      *confirmed->mutable_volume_capabilities() = request->volume_capabilities();
      *confirmed->mutable_parameters() = request->parameters();
      *confirmed->mutable_mutable_parameters() = request->mutable_parameters();
      return absl::OkStatus();
    });
  }

  // Two questions to each array, not one a volume. The lists are of slightly different moments, as CSI
  // allows.
  grpc::Status ListVolumes(ServerContext*, const v1::ListVolumesRequest* request,
                           v1::ListVolumesResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const size_t limit, ParseMaxEntries(request->max_entries()));
      ASSIGN_OR_RETURN(const Page<Volume> page, volumes_->ListVolumes(request->starting_token(), limit));
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
    });
  }

  // A node counts as published with any grant, also one that it acquired for itself.
  grpc::Status ControllerGetVolume(ServerContext*, const v1::ControllerGetVolumeRequest* request,
                                   v1::ControllerGetVolumeResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("volume_id", request->volume_id()));
      ASSIGN_OR_RETURN(const Volume volume, volumes_->GetVolume(VolumeId(request->volume_id())));
      ASSIGN_OR_RETURN(const std::vector<Grant> grants, grants_->ListGrants({volume.id, {}}));
      FillVolume(volume, response->mutable_volume());
      auto* status = response->mutable_status();
      for (const Grant& grant : grants) status->add_published_node_ids(grant.node.value());
      return absl::OkStatus();
    });
  }

  grpc::Status ControllerGetVolumeHealth(ServerContext*, const v1::ControllerGetVolumeHealthRequest* request,
                                         v1::ControllerGetVolumeHealthResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("volume_id", request->volume_id()));
      ASSIGN_OR_RETURN(*response->mutable_volume_health(),
                       HealthChecker(arrays_).CheckVolume(VolumeId(request->volume_id())));
      return absl::OkStatus();
    });
  }

  grpc::Status ControllerListVolumeHealth(ServerContext*,
                                          const v1::ControllerListVolumeHealthRequest* request,
                                          v1::ControllerListVolumeHealthResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const size_t limit, ParseMaxEntries(request->max_entries()));
      ASSIGN_OR_RETURN(const Page<v1::VolumeHealth> page,
                       HealthChecker(arrays_).ListProblems(*volumes_, request->starting_token(), limit));
      for (const v1::VolumeHealth& health : page.items) *response->add_entries() = health;
      response->set_next_token(page.next_token);
      return absl::OkStatus();
    });
  }

  grpc::Status GetCapacity(ServerContext*, const v1::GetCapacityRequest* request,
                           v1::GetCapacityResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      // All are checked before the answer: a malformed one is an error also after an unsupported one.
      bool possible = true;
      for (const v1::VolumeCapability& capability : request->volume_capabilities()) {
        RETURN_IF_ERROR(CheckCapability(capability));
        if (!WhyUnsupported(capability).empty()) possible = false;
      }
      ASSIGN_OR_RETURN(const VolumeParameters parameters, ParseParameters(request->parameters()));
      RETURN_IF_ERROR(CheckPool(arrays_.ListArrays(), parameters.pool));
      RETURN_IF_ERROR(arrays_.CheckKnown());
      possible = possible && !arrays_.IsRemoved(parameters.array);
      v1::TopologyRequirement requirement;
      if (request->has_accessible_topology()) *requirement.add_requisite() = request->accessible_topology();
      const auto place = ChooseArray(arrays_.ListArrays(), parameters.array, requirement);
      // A place or a use we cannot serve has no capacity.
      if (!possible || absl::IsResourceExhausted(place.status())) return absl::OkStatus();
      RETURN_IF_ERROR(place.status());
      ASSIGN_OR_RETURN(const PoolCapacity pool, place->array->volumes().GetCapacity());
      FillCapacity(pool, response);
      return absl::OkStatus();
    });
  }

  grpc::Status ControllerGetCapabilities(ServerContext*, const v1::ControllerGetCapabilitiesRequest*,
                                         v1::ControllerGetCapabilitiesResponse* response) override {
    FillCapabilities(response);
    return grpc::Status::OK;
  }

  grpc::Status ControllerExpandVolume(ServerContext*, const v1::ControllerExpandVolumeRequest* request,
                                      v1::ControllerExpandVolumeResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("volume_id", request->volume_id()));
      if (!request->has_capacity_range()) return absl::InvalidArgumentError("capacity_range: required");
      if (request->has_volume_capability()) {
        RETURN_IF_ERROR(CheckCapability(request->volume_capability()));
        if (const std::string why = WhyUnsupported(request->volume_capability()); !why.empty()) {
          return absl::InvalidArgumentError(absl::StrCat("volume_capability: ", why));
        }
      }
      ASSIGN_OR_RETURN(const auto guard, LockObject(absl::StrCat("volume ", request->volume_id())));
      ASSIGN_OR_RETURN(const Volume before, volumes_->GetVolume(VolumeId(request->volume_id())));
      // A repeated call finds the volume grown already, and the same size is chosen again.
      // A volume never shrinks, so its size now is the least there is.
      ASSIGN_OR_RETURN(const uint64_t size, ChooseSize(&request->capacity_range(), before.spec.size_bytes));
      ASSIGN_OR_RETURN(const Volume after, volumes_->ExpandVolume(before.id, size));
      response->set_capacity_bytes(static_cast<int64_t>(after.spec.size_bytes));
      response->set_node_expansion_required(
          true);  // the block device has to grow too, with or without a file system
      return absl::OkStatus();
    });
  }

  grpc::Status ControllerModifyVolume(ServerContext*, const v1::ControllerModifyVolumeRequest* request,
                                      v1::ControllerModifyVolumeResponse*) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("volume_id", request->volume_id()));
      ASSIGN_OR_RETURN(const VolumeChange change,
                       ParseMutableParameters(request->mutable_parameters(), /*required=*/true));
      ASSIGN_OR_RETURN(const auto guard, LockObject(absl::StrCat("volume ", request->volume_id())));
      return volumes_->ModifyVolume(VolumeId(request->volume_id()), change).status();
    });
  }

  grpc::Status CreateSnapshot(ServerContext*, const v1::CreateSnapshotRequest* request,
                              v1::CreateSnapshotResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckName(request->name()));
      RETURN_IF_ERROR(CheckId("source_volume_id", request->source_volume_id()));
      RETURN_IF_ERROR(CheckNoParameters("parameters", request->parameters()));
      // There is no choice, only a check: a snapshot is on the array of its volume.
      RETURN_IF_ERROR(CheckAccessibility(request->accessibility_requirements(),
                                         ArrayNameIn(request->source_volume_id())));
      ASSIGN_OR_RETURN(const auto guard, LockObject(absl::StrCat("snapshot ", request->name())));
      ASSIGN_OR_RETURN(const Snapshot taken,
                       volumes_->CreateSnapshot(request->name(), VolumeId(request->source_volume_id())));
      return FillTaken(taken, response->mutable_snapshot());
    });
  }

  grpc::Status DeleteSnapshot(ServerContext*, const v1::DeleteSnapshotRequest* request,
                              v1::DeleteSnapshotResponse*) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("snapshot_id", request->snapshot_id()));
      ASSIGN_OR_RETURN(const auto guard, LockObject(absl::StrCat("snapshot ", request->snapshot_id())));
      return volumes_->DeleteSnapshot(SnapshotId(request->snapshot_id()));
    });
  }

  grpc::Status ListSnapshots(ServerContext*, const v1::ListSnapshotsRequest* request,
                             v1::ListSnapshotsResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const size_t limit, ParseMaxEntries(request->max_entries()));
      if (!request->source_volume_id().empty())
        RETURN_IF_ERROR(CheckId("source_volume_id", request->source_volume_id()));
      const VolumeId source(request->source_volume_id());
      if (!request->snapshot_id().empty()) {  // that one, or none
        RETURN_IF_ERROR(CheckId("snapshot_id", request->snapshot_id()));
        const absl::StatusOr<Snapshot> snapshot = volumes_->GetSnapshot(SnapshotId(request->snapshot_id()));
        // CSI wants an empty list here, and no NOT_FOUND.
        if (absl::IsNotFound(snapshot.status())) return absl::OkStatus();
        RETURN_IF_ERROR(snapshot.status());
        if (!source.empty() && snapshot->source != source) return absl::OkStatus();
        FillSnapshot(*snapshot, response->add_entries()->mutable_snapshot());
        return absl::OkStatus();
      }
      ASSIGN_OR_RETURN(const Page<Snapshot> page,
                       volumes_->ListSnapshots(source, request->starting_token(), limit));
      for (const Snapshot& snapshot : page.items)
        FillSnapshot(snapshot, response->add_entries()->mutable_snapshot());
      response->set_next_token(page.next_token);
      return absl::OkStatus();
    });
  }

  grpc::Status GetSnapshot(ServerContext*, const v1::GetSnapshotRequest* request,
                           v1::GetSnapshotResponse* response) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("snapshot_id", request->snapshot_id()));
      ASSIGN_OR_RETURN(const Snapshot found, volumes_->GetSnapshot(SnapshotId(request->snapshot_id())));
      FillSnapshot(found, response->mutable_snapshot());
      return absl::OkStatus();
    });
  }

 private:
  // ABORTED: another call is at work on it.
  absl::StatusOr<KeyedLock::Guard> LockObject(const std::string& what) {
    auto guard = locks_.TryLock(what);
    if (guard.has_value()) return *std::move(guard);
    return absl::AbortedError(absl::StrCat(what, ": another call is at work on it: try again"));
  }

  // The array checks what a node may do to the data; this is CSI's finer view, with the file system.
  absl::Status CheckMadeFor(const VolumeId& id, const v1::VolumeCapability& capability) {
    ASSIGN_OR_RETURN(const Volume volume, volumes_->GetVolume(id));
    const std::string why = WhyNotMadeFor(volume.spec, capability);
    if (why.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("volume ", id.value(), ": ", why));
  }

  // The array says FAILED_PRECONDITION when the node has the volume with another access; CSI wants
  // ALREADY_EXISTS then.
  absl::Status ExplainRefusal(const GrantRequest& request, const absl::Status& refusal) {
    if (!absl::IsFailedPrecondition(refusal)) return refusal;
    ASSIGN_OR_RETURN(const std::vector<Grant> grants, grants_->ListGrants({request.volume, request.node}));
    if (grants.empty() || grants.front().access == request.access) return refusal;
    return absl::AlreadyExistsError(refusal.message());
  }

  Arrays& arrays_;
  // Of all arrays: the id says which one is meant.
  const std::unique_ptr<VolumeStore> volumes_;
  const std::unique_ptr<GrantStore> grants_;
  VolumeCreator creator_;
  const ControllerOptions options_;
  KeyedLock locks_;  // "volume <name or id>", "snapshot <name or id>", "grant <volume> <node>"
};

}  // namespace

std::unique_ptr<v1::Controller::Service> MakeControllerService(Arrays& arrays, ControllerOptions options) {
  return std::make_unique<ControllerService>(arrays, options);
}

}  // namespace lunkeeper
