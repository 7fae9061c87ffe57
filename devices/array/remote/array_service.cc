// Each RPC is one line of work inside AnswerRead or AnswerChange, which do what all have in common:
//   1. read who calls from the verified certificate (rights.h)
//   2. check that the call is meant for this array and this copy of its pool (meant.h)
//   3. check the caller's right: readers may only read
//   4. check the texts, then do the work on the caller's cluster's own view
//   5. confirm that no other agent has the array, in whose hands it may have changed since
//   6. name this array in the trailing metadata, so that the client knows the answer for the array's own
//
// AcquireGrant may wait for minutes and holds a server thread all that time. WaitingPlaces keep threads free
// for releases and fences, which are what ends the waiting; a volume that is free needs no place.
#include "devices/array/remote/array_service.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "base/status_macros.h"
#include "devices/array/remote/gateway_messages.h"
#include "devices/array/remote/meant.h"
#include "devices/array/remote/name_messages.h"
#include "devices/array/remote/request_texts.h"
#include "devices/array/remote/rights.h"
#include "devices/array/remote/session_messages.h"
#include "devices/array/remote/wire.h"
#include "devices/connection_message.h"

namespace lunkeeper {
namespace {

using google::protobuf::Message;
using grpc::ServerContext;
namespace v1 = array::v1;

constexpr size_t kLongestPage = 1000;
// A wait ends this much before the call's deadline. At the same moment gRPC's own DEADLINE_EXCEEDED could
// win, and the caller would not learn who holds the volume.
constexpr absl::Duration kAnswerMargin = absl::Milliseconds(200);

// In PEM form.
std::string CertificateOf(const ServerContext& context) {
  const auto shown = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return shown.empty() ? "" : std::string(shown.front().data(), shown.front().size());
}

// gRPC's clients refuse messages above a size (kMostAnswerBytes); the page's token leads to the rest.
size_t PageLimit(uint32_t asked) { return asked == 0 ? kLongestPage : std::min<size_t>(asked, kLongestPage); }

class ArrayServiceImpl final : public v1::ArrayService::Service {
 public:
  explicit ArrayServiceImpl(ArrayServiceOptions options)
      : options_(std::move(options)), places_(options_.waiting) {}

  // Checked as every call, so a controller with a wrong certificate finds out before its first volume.
  grpc::Status Check(ServerContext* context, const v1::CheckRequest* request,
                     v1::CheckResponse* response) override {
    if (options_.gateway) *response = wire::ToMessage(options_.gateway());
    return AnswerRead(context, request, [&](Array&) { return options_.serving(); });
  }

  grpc::Status CreateVolume(ServerContext* context, const v1::CreateVolumeRequest* request,
                            v1::VolumeResponse* response) override {
    return AnswerChange(context, request, [&](Array& array) -> absl::Status {
      ASSIGN_OR_RETURN(const VolumeSpec spec, wire::FromMessage(request->spec()));
      return FillMessage(array.volumes().CreateVolume(spec), response->mutable_volume());
    });
  }
  grpc::Status DeleteVolume(ServerContext* context, const v1::DeleteVolumeRequest* request,
                            v1::DeleteVolumeResponse*) override {
    return AnswerChange(context, request, [&](Array& array) {
      return array.volumes().DeleteVolume(VolumeId(request->volume_id()));
    });
  }
  grpc::Status GetVolume(ServerContext* context, const v1::GetVolumeRequest* request,
                         v1::VolumeResponse* response) override {
    return AnswerRead(context, request, [&](Array& array) {
      return FillMessage(array.volumes().GetVolume(VolumeId(request->volume_id())),
                         response->mutable_volume());
    });
  }
  grpc::Status ListVolumes(ServerContext* context, const v1::ListVolumesRequest* request,
                           v1::ListVolumesResponse* response) override {
    return AnswerRead(context, request, [&](Array& array) {
      return FillPage(array.volumes().ListVolumes(request->token(), PageLimit(request->limit())),
                      response->mutable_volumes(), response);
    });
  }
  grpc::Status ExpandVolume(ServerContext* context, const v1::ExpandVolumeRequest* request,
                            v1::VolumeResponse* response) override {
    return AnswerChange(context, request, [&](Array& array) {
      return FillMessage(array.volumes().ExpandVolume(VolumeId(request->volume_id()), request->size_bytes()),
                         response->mutable_volume());
    });
  }
  grpc::Status ModifyVolume(ServerContext* context, const v1::ModifyVolumeRequest* request,
                            v1::VolumeResponse* response) override {
    return AnswerChange(context, request, [&](Array& array) -> absl::Status {
      ASSIGN_OR_RETURN(const VolumeChange change, wire::FromMessage(*request));
      return FillMessage(array.volumes().ModifyVolume(VolumeId(request->volume_id()), change),
                         response->mutable_volume());
    });
  }

  grpc::Status CreateSnapshot(ServerContext* context, const v1::CreateSnapshotRequest* request,
                              v1::SnapshotResponse* response) override {
    return AnswerChange(context, request, [&](Array& array) {
      return FillMessage(
          array.volumes().CreateSnapshot(request->name(), VolumeId(request->source_volume_id())),
          response->mutable_snapshot());
    });
  }
  grpc::Status DeleteSnapshot(ServerContext* context, const v1::DeleteSnapshotRequest* request,
                              v1::DeleteSnapshotResponse*) override {
    return AnswerChange(context, request, [&](Array& array) {
      return array.volumes().DeleteSnapshot(SnapshotId(request->snapshot_id()));
    });
  }
  grpc::Status GetSnapshot(ServerContext* context, const v1::GetSnapshotRequest* request,
                           v1::SnapshotResponse* response) override {
    return AnswerRead(context, request, [&](Array& array) {
      return FillMessage(array.volumes().GetSnapshot(SnapshotId(request->snapshot_id())),
                         response->mutable_snapshot());
    });
  }
  grpc::Status ListSnapshots(ServerContext* context, const v1::ListSnapshotsRequest* request,
                             v1::ListSnapshotsResponse* response) override {
    return AnswerRead(context, request, [&](Array& array) {
      const VolumeId source(request->source_volume_id());
      return FillPage(array.volumes().ListSnapshots(source, request->token(), PageLimit(request->limit())),
                      response->mutable_snapshots(), response);
    });
  }
  grpc::Status Capacity(ServerContext* context, const v1::CapacityRequest* request,
                        v1::CapacityResponse* response) override {
    return AnswerRead(context, request,
                      [&](Array& array) { return FillMessage(array.volumes().GetCapacity(), response); });
  }

  grpc::Status CreateSnapshotGroup(ServerContext* context, const v1::CreateSnapshotGroupRequest* request,
                                   v1::SnapshotGroupResponse* response) override {
    return AnswerChange(context, request, [&](Array& array) {
      const auto& ids = request->source_volume_ids();
      return FillMessage(array.groups().CreateGroup(request->name(), {ids.begin(), ids.end()}),
                         response->mutable_group());
    });
  }
  grpc::Status DeleteSnapshotGroup(ServerContext* context, const v1::DeleteSnapshotGroupRequest* request,
                                   v1::DeleteSnapshotGroupResponse*) override {
    return AnswerChange(context, request, [&](Array& array) {
      return array.groups().DeleteGroup(SnapshotGroupId(request->group_id()));
    });
  }
  grpc::Status GetSnapshotGroup(ServerContext* context, const v1::GetSnapshotGroupRequest* request,
                                v1::SnapshotGroupResponse* response) override {
    return AnswerRead(context, request, [&](Array& array) {
      return FillMessage(array.groups().GetGroup(SnapshotGroupId(request->group_id())),
                         response->mutable_group());
    });
  }

  grpc::Status ListBlocks(ServerContext* context, const v1::ListBlocksRequest* request,
                          v1::ListBlocksResponse* response) override {
    return AnswerRead(context, request, [&](Array& array) {
      return FillMessage(array.blocks().ListBlocks({.snapshot = SnapshotId(request->snapshot_id()),
                                                    .base = SnapshotId(request->base_snapshot_id()),
                                                    .offset = request->offset(),
                                                    .limit = request->limit()}),
                         response);
    });
  }

  grpc::Status FindNamed(ServerContext* context, const v1::FindNamedRequest* request,
                         v1::FindNamedResponse* response) override {
    return AnswerRead(context, request,
                      [&](Array& array) { return wire::AnswerNamed(array.names(), *request, response); });
  }
  grpc::Status Acquire(ServerContext* context, const v1::AcquireRequest* request,
                       v1::AcquireResponse* response) override {
    return AnswerChange(context, request, [&](Array& array) -> absl::Status {
      ASSIGN_OR_RETURN(const Caller caller, CallerOf(*context));
      return FillMessage(AcquireAndWait(*context, *request, caller.cluster, array),
                         response->mutable_grant());
    });
  }
  grpc::Status Release(ServerContext* context, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse*) override {
    return AnswerChange(context, request, [&](Array& array) -> absl::Status {
      ASSIGN_OR_RETURN(const GrantOwner owner, wire::FromMessage(request->owner()));
      return array.grants().ReleaseGrant(VolumeId(request->volume_id()), NodeId(request->node_id()), owner,
                                         request->generation());
    });
  }
  grpc::Status ListGrants(ServerContext* context, const v1::ListGrantsRequest* request,
                          v1::ListGrantsResponse* response) override {
    const grpc::Status status = AnswerRead(context, request, [&](Array& array) -> absl::Status {
      // Before the list: what changes in between has another version.
      ASSIGN_OR_RETURN(*response->mutable_version(), array.grants().GrantsVersion());
      response->set_unchanged(!response->version().empty() &&
                              response->version() == request->known_version());
      if (response->unchanged()) return absl::OkStatus();
      return FillMessages(array.grants().ListGrants({.volume = VolumeId(request->volume_id()),
                                                     .node = NodeId(request->node_id()),
                                                     .holders_only = request->holders_only()}),
                          response->mutable_grants());
    });
    const auto caller = CallerOf(*context);
    if (caller.ok() && caller->right == Right::kController) return status;
    // With a grant's CHAP secret, any machine could log in as the grant's node.
    for (v1::Grant& grant : *response->mutable_grants()) ClearSecrets(*grant.mutable_connection());
    return status;
  }
  // The new term ends all earlier ones: a leader that was replaced gets an error for its next fence.
  grpc::Status BeginTerm(ServerContext* context, const v1::BeginTermRequest* request,
                         v1::BeginTermResponse* response) override {
    return AnswerChange(context, request, [&](Array& array) -> absl::Status {
      ASSIGN_OR_RETURN(const Term term, array.fences().BeginTerm(request->holder()));
      response->set_term(term);
      return absl::OkStatus();
    });
  }
  // A drain may take longer than the client waits. The fence is in force all the same, and the repeated call
  // waits for what remains of the drain.
  grpc::Status Fence(ServerContext* context, const v1::FenceRequest* request,
                     v1::FenceResponse* response) override {
    return AnswerChange(context, request, [&](Array& array) {
      return FillMessage(array.fences().FenceNode(request->term(), wire::FromMessage(*request)),
                         response->mutable_fence());
    });
  }
  grpc::Status Unfence(ServerContext* context, const v1::UnfenceRequest* request,
                       v1::UnfenceResponse*) override {
    return AnswerChange(context, request, [&](Array& array) {
      return array.fences().UnfenceNode(request->term(), NodeId(request->node_id()), request->generation());
    });
  }
  grpc::Status ListFences(ServerContext* context, const v1::ListFencesRequest* request,
                          v1::ListFencesResponse* response) override {
    return AnswerRead(context, request, [&](Array& array) {
      return FillMessages(array.fences().ListFences(), response->mutable_fences());
    });
  }
  grpc::Status Sessions(ServerContext* context, const v1::SessionsRequest* request,
                        v1::SessionsResponse* response) override {
    return AnswerRead(context, request,
                      [&](Array& array) { return wire::AnswerSessions(array.grants(), *request, response); });
  }
  grpc::Status Wanted(ServerContext* context, const v1::WantedRequest* request,
                      v1::WantedResponse* response) override {
    return AnswerRead(context, request, [&](Array& array) -> absl::Status {
      ASSIGN_OR_RETURN(const auto wanted, array.grants().ListWantedVolumes());
      for (const VolumeId& volume : wanted) response->add_volume_ids(volume.value());
      return absl::OkStatus();
    });
  }

  // A controller's call, although a repeated one changes nothing: the answer has a CHAP secret.
  grpc::Status OpenHeartbeatLun(ServerContext* context, const v1::OpenHeartbeatLunRequest* request,
                                v1::OpenHeartbeatLunResponse* response) override {
    return AnswerChange(context, request, [&](Array& array) {
      const absl::StatusOr<Connection> access =
          array.fences().OpenHeartbeatLun({.node = NodeId(request->node_id()), .signs = request->signs()});
      if (access.ok()) *response->mutable_connection() = ToMessage(*access);
      return access.status();
    });
  }
  grpc::Status ListHeartbeats(ServerContext* context, const v1::ListHeartbeatsRequest* request,
                              v1::ListHeartbeatsResponse* response) override {
    return AnswerRead(context, request, [&](Array& array) {
      return FillMessages(array.fences().ListHeartbeats(), response->mutable_heartbeats());
    });
  }

 private:
  template <class T, class Out>
  static absl::Status FillMessage(const absl::StatusOr<T>& value, Out* out) {
    if (value.ok()) *out = wire::ToMessage(*value);
    return value.status();
  }
  template <class T, class Out>
  static absl::Status FillMessages(const absl::StatusOr<std::vector<T>>& values, Out* out) {
    RETURN_IF_ERROR(values.status());
    for (const T& value : *values) *out->Add() = wire::ToMessage(value);
    return absl::OkStatus();
  }
  template <class T, class Out, class Response>
  static absl::Status FillPage(absl::StatusOr<Page<T>> page, Out* out, Response* response) {
    RETURN_IF_ERROR(page.status());
    response->set_next_token(page->next_token);
    return FillMessages<T>(std::move(page->items), out);
  }

  // A call for readers too.
  template <class Work>
  grpc::Status AnswerRead(ServerContext* context, const Message* request, const Work& work) {
    return ToGrpcStatus(RunChecked(context, *request, Right::kReader, work));
  }
  template <class Work>
  grpc::Status AnswerChange(ServerContext* context, const Message* request, const Work& work) {
    return ToGrpcStatus(RunChecked(context, *request, Right::kController, work));
  }

  absl::Status RunChecked(ServerContext* context, const Message& request, Right needed,
                          absl::FunctionRef<absl::Status(Array&)> work) {
    const auto identity = options_.identity ? options_.identity() : std::nullopt;
    if (identity) {
      context->AddTrailingMetadata(wire::kPoolKey, ToText(*identity));
      RETURN_IF_ERROR(CheckCopyMeant(*context, options_.name, *identity));
    }
    const absl::Status answer = RunMeant(*context, request, needed, work);
    // Also an error may be old news, such as that of a volume that was made meanwhile.
    if (const absl::Status serving = options_.confirm ? options_.confirm() : absl::OkStatus();
        !serving.ok()) {
      context->AddTrailingMetadata(wire::kNotServingKey, options_.name);
      return serving;
    }
    // The client takes an error without this key for one of the connection.
    context->AddTrailingMetadata(wire::kArrayKey, options_.name);
    return answer;
  }

  absl::Status RunMeant(const ServerContext& context, const Message& request, Right needed,
                        absl::FunctionRef<absl::Status(Array&)> work) {
    ASSIGN_OR_RETURN(const Caller caller, CallerOf(context));
    // With each call, so that connections which are open already end as well.
    if (options_.check_certificate) RETURN_IF_ERROR(options_.check_certificate(CertificateOf(context)));
    RETURN_IF_ERROR(CheckArrayMeant(context, options_.name));
    // Rights are ordered: a controller may do all that a reader may.
    if (caller.right < needed) {
      return absl::PermissionDeniedError(
          absl::StrCat("array ", options_.name, ": the client's certificate is a reader's of cluster ",
                       caller.cluster.value(), ": this call needs a controller's"));
    }
    if (options_.note_copy && caller.right == Right::kController)
      if (const auto known = ReadCopyMeant(context)) options_.note_copy(*known);
    RETURN_IF_ERROR(CheckTexts(request));
    return work(*options_.view(caller.cluster));
  }

  absl::StatusOr<Grant> AcquireAndWait(const ServerContext& context, const v1::AcquireRequest& message,
                                       const ClusterId& cluster, Array& array) {
    GrantRequest request;
    request.volume = VolumeId(message.volume_id());
    request.node = NodeId(message.node_id());
    ASSIGN_OR_RETURN(request.access, wire::FromMessage(message.access()));
    ASSIGN_OR_RETURN(request.owner, wire::FromMessage(message.owner()));
    ASSIGN_OR_RETURN(request.mode, wire::FromMessage(message.mode()));
    request.most = message.most_volumes();
    request.node_uid = message.node_uid();
    const auto leaving = [this] { return options_.leaving && options_.leaving(); };
    // The array polls this while it waits. A grant that no client receives would keep the volume from the
    // next node, until somebody released it.
    request.abandoned = [&] { return context.IsCancelled() || leaving(); };
    // The client's deadline bounds the wait: after it, no client would receive the grant.
    const absl::Duration asked = absl::Nanoseconds(message.wait_nanos());
    if (asked <= absl::ZeroDuration()) return array.grants().AcquireGrant(request, absl::ZeroDuration());
    const absl::Duration left = absl::FromChrono(context.deadline()) - absl::Now() - kAnswerMargin;
    // Never zero, which would mean "do not wait", and a refusal would have another code.
    const absl::Duration wait = std::max(std::min(asked, left), absl::Milliseconds(1));
    const WaitingPlaces::Place place = places_.TakePlace(cluster, request.node);
    if (place == nullptr) return AcquireIfFree(request, array);
    const absl::StatusOr<Grant> grant = array.grants().AcquireGrant(request, wait);
    // The client did not cancel, this process stops: UNAVAILABLE makes the client repeat the call.
    if (!absl::IsCancelled(grant.status()) || !leaving()) return grant;
    return absl::UnavailableError(
        absl::StrCat("array ", options_.name, ": its agent is stopping: try again"));
  }

  // For a caller without a place. Not for a volume that others stand in line for: the array would make the
  // call stand in line as well.
  absl::StatusOr<Grant> AcquireIfFree(const GrantRequest& request, Array& array) {
    const absl::Status busy = absl::UnavailableError(
        absl::StrCat("array ", options_.name, ": volume ", request.volume.value(),
                     " is held, and as many requests as may wait for volumes do so already: try again"));
    ASSIGN_OR_RETURN(const auto wanted, array.grants().ListWantedVolumes());
    if (std::find(wanted.begin(), wanted.end(), request.volume) != wanted.end()) return busy;
    const absl::StatusOr<Grant> grant = array.grants().AcquireGrant(request, absl::ZeroDuration());
    if (!absl::IsFailedPrecondition(grant.status())) return grant;
    // Held by another node, or refused for good, such as to a fenced node.
    ASSIGN_OR_RETURN(const auto holders, array.grants().ListGrants({.volume = request.volume, .node = {}}));
    const auto is_other = [&](const Grant& each) { return each.node != request.node; };
    return std::ranges::any_of(holders, is_other) ? busy : grant;
  }

  const ArrayServiceOptions options_;
  WaitingPlaces places_;
};

}  // namespace

std::unique_ptr<v1::ArrayService::Service> MakeArrayService(ArrayServiceOptions options) {
  return std::make_unique<ArrayServiceImpl>(std::move(options));
}

}  // namespace lunkeeper
