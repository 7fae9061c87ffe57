// The client of an array's agents. Every method turns its arguments into a message, calls an agent and turns
// the answer back; AgentCaller has the rules of the connections.
#include "devices/array/remote/remote_array.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/array/remote/agent_caller.h"
#include "devices/array/remote/array.grpc.pb.h"
#include "devices/array/remote/gateway_messages.h"
#include "devices/array/remote/kept_holders.h"
#include "devices/array/remote/listed_names.h"
#include "devices/array/remote/name_messages.h"
#include "devices/array/remote/session_messages.h"
#include "devices/array/remote/wire.h"
#include "devices/connection_message.h"
#include "devices/node_id.h"

namespace lunkeeper {
namespace {

namespace v1 = array::v1;
using Stub = v1::ArrayService::Stub;

class RemoteArrayImpl final : public RemoteArray,
                              public VolumeStore,
                              public SnapshotGroups,
                              public SnapshotBlocks,
                              public GrantStore,
                              public FenceControl,
                              public NameIndex {
 public:
  RemoteArrayImpl(const RemoteArrayOptions& options,
                  const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : options_(options), caller_(options, credentials) {}

  VolumeStore& volumes() override { return *this; }
  SnapshotGroups& groups() override { return *this; }
  SnapshotBlocks& blocks() override { return *this; }
  GrantStore& grants() override { return *this; }
  FenceControl& fences() override { return *this; }
  NameIndex& names() override { return *this; }

  absl::Status CheckServing(absl::Duration timeout) override { return AskGateway(timeout).status(); }

  absl::StatusOr<std::optional<GatewayState>> AskGateway(absl::Duration timeout) override {
    v1::CheckResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncCheck, v1::CheckRequest(), &response, timeout));
    return wire::FromMessage(response);
  }

  absl::StatusOr<Volume> CreateVolume(const VolumeSpec& spec) override {
    v1::CreateVolumeRequest request;
    *request.mutable_spec() = wire::ToMessage(spec);
    return AskForVolume(&Stub::AsyncCreateVolume, request);
  }
  absl::Status DeleteVolume(const VolumeId& id) override {
    v1::DeleteVolumeRequest request;
    request.set_volume_id(id.value());
    v1::DeleteVolumeResponse response;
    return CallAgent(&Stub::AsyncDeleteVolume, request, &response);
  }
  absl::StatusOr<Volume> GetVolume(const VolumeId& id) override {
    v1::GetVolumeRequest request;
    request.set_volume_id(id.value());
    return AskForVolume(&Stub::AsyncGetVolume, request);
  }
  absl::StatusOr<Page<Volume>> ListVolumes(const std::string& token, size_t limit) override {
    v1::ListVolumesRequest request;
    request.set_token(token);
    request.set_limit(LimitOf(limit));
    v1::ListVolumesResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncListVolumes, request, &response));
    return Page<Volume>{ReadAll<Volume>(response.volumes()), response.next_token()};
  }
  absl::StatusOr<Volume> ExpandVolume(const VolumeId& id, uint64_t size_bytes) override {
    v1::ExpandVolumeRequest request;
    request.set_volume_id(id.value());
    request.set_size_bytes(size_bytes);
    return AskForVolume(&Stub::AsyncExpandVolume, request);
  }
  absl::StatusOr<Volume> ModifyVolume(const VolumeId& id, const VolumeChange& change) override {
    ASSIGN_OR_RETURN(auto changed, AskForVolume(&Stub::AsyncModifyVolume, wire::ToMessage(id, change)));
    if (WithChange(changed.spec, change) == changed.spec) return changed;
    return absl::UnimplementedError(absl::StrCat(  // what an agent does not know, it passes over
        "volume ", id.value(),
        ": its array's agent is of an older version and knows no digests: upgrade it"));
  }

  absl::StatusOr<Snapshot> CreateSnapshot(const std::string& name, const VolumeId& source) override {
    v1::CreateSnapshotRequest request;
    request.set_name(name);
    request.set_source_volume_id(source.value());
    v1::SnapshotResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncCreateSnapshot, request, &response));
    return wire::FromMessage(response.snapshot());
  }
  absl::Status DeleteSnapshot(const SnapshotId& id) override {
    v1::DeleteSnapshotRequest request;
    request.set_snapshot_id(id.value());
    v1::DeleteSnapshotResponse response;
    return CallAgent(&Stub::AsyncDeleteSnapshot, request, &response);
  }
  absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId& id) override {
    v1::GetSnapshotRequest request;
    request.set_snapshot_id(id.value());
    v1::SnapshotResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncGetSnapshot, request, &response));
    return wire::FromMessage(response.snapshot());
  }
  absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId& source, const std::string& token,
                                               size_t limit) override {
    v1::ListSnapshotsRequest request;
    request.set_source_volume_id(source.value());
    request.set_token(token);
    request.set_limit(LimitOf(limit));
    v1::ListSnapshotsResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncListSnapshots, request, &response));
    return Page<Snapshot>{ReadAll<Snapshot>(response.snapshots()), response.next_token()};
  }
  absl::StatusOr<PoolCapacity> GetCapacity() override {
    v1::CapacityResponse response;
    // All arrays are asked before a volume is made in one of them, and one that hangs may not hold that up.
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncCapacity, v1::CapacityRequest(), &response,
                              std::min(options_.search_timeout, options_.call_timeout)));
    return wire::FromMessage(response);
  }

  absl::StatusOr<SnapshotGroup> CreateGroup(const std::string& name,
                                            const std::vector<VolumeId>& sources) override {
    v1::CreateSnapshotGroupRequest request;
    request.set_name(name);
    for (const VolumeId& source : sources) request.add_source_volume_ids(source.value());
    v1::SnapshotGroupResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncCreateSnapshotGroup, request, &response));
    return wire::FromMessage(response.group());
  }
  absl::Status DeleteGroup(const SnapshotGroupId& id) override {
    v1::DeleteSnapshotGroupRequest request;
    request.set_group_id(id.value());
    v1::DeleteSnapshotGroupResponse response;
    return CallAgent(&Stub::AsyncDeleteSnapshotGroup, request, &response);
  }
  absl::StatusOr<SnapshotGroup> GetGroup(const SnapshotGroupId& id) override {
    v1::GetSnapshotGroupRequest request;
    request.set_group_id(id.value());
    v1::SnapshotGroupResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncGetSnapshotGroup, request, &response));
    return wire::FromMessage(response.group());
  }

  absl::StatusOr<BlockPage> ListBlocks(const BlockQuery& query) override {
    v1::ListBlocksRequest request;
    request.set_snapshot_id(query.snapshot.value());
    request.set_base_snapshot_id(query.base.value());
    request.set_offset(query.offset);
    request.set_limit(LimitOf(query.limit));
    v1::ListBlocksResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncListBlocks, request, &response));
    return wire::FromMessage(response);
  }

  absl::StatusOr<std::string> FindNamed(NamedKind kind, const std::string& name) override {
    v1::FindNamedResponse response;
    const absl::Status asked =
        CallAgent(&Stub::AsyncFindNamed, wire::ToMessage(kind, name), &response, options_.search_timeout);
    if (absl::IsUnimplemented(asked)) return FindListed(*this, *this, kind, name);
    RETURN_IF_ERROR(asked);
    return response.id();
  }

  absl::StatusOr<Grant> AcquireGrant(const GrantRequest& request, absl::Duration wait) override {
    v1::AcquireRequest message;
    message.set_volume_id(request.volume.value());
    message.set_node_id(request.node.value());
    message.set_access(wire::ToMessage(request.access));
    message.set_owner(wire::ToMessage(request.owner));
    message.set_wait_nanos(absl::ToInt64Nanoseconds(wait));
    message.set_most_volumes(LimitOf(request.most));
    message.set_mode(wire::ToMessage(request.mode));
    message.set_node_uid(request.node_uid);
    v1::AcquireResponse response;
    // Longer than the wait: at its end the agent answers which node has the volume, and that answer has to
    // arrive before gRPC's own DEADLINE_EXCEEDED.
    const absl::Duration timeout = std::max(wait, absl::ZeroDuration()) + options_.wait_margin;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncAcquire, message, &response, timeout, request.abandoned));
    return wire::FromMessage(response.grant());
  }
  absl::Status ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                            Generation generation) override {
    v1::ReleaseRequest request;
    request.set_volume_id(volume.value());
    request.set_node_id(node.value());
    request.set_owner(wire::ToMessage(owner));
    request.set_generation(generation);
    v1::ReleaseResponse response;
    return CallAgent(&Stub::AsyncRelease, request, &response);
  }
  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) override {
    v1::ListGrantsRequest request;
    request.set_volume_id(filter.volume.value());
    request.set_node_id(filter.node.value());
    request.set_holders_only(filter.holders_only);
    if (filter.holders_only && filter.volume.empty() && filter.node.empty()) return ListHolders(request);
    v1::ListGrantsResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncListGrants, request, &response));
    return ReadAll<Grant>(response.grants());
  }
  absl::StatusOr<Term> BeginTerm(const std::string& holder) override {
    v1::BeginTermRequest request;
    request.set_holder(holder);
    v1::BeginTermResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncBeginTerm, request, &response));
    return response.term();
  }
  absl::StatusOr<FenceRecord> FenceNode(Term term, const FenceRequest& request) override {
    v1::FenceResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncFence, wire::ToMessage(term, request), &response));
    if (response.fence().of_machine() || !IsMachineId(request.node))
      return wire::FromMessage(response.fence());
    // Such an agent has stored a fence that holds nobody, and its next version would enforce it.
    UnfenceNode(term, request.node, response.fence().generation()).IgnoreError();
    return absl::UnimplementedError(
        absl::StrCat("fence machine ", MachineOf(request.node),
                     ": the array's agent is too old to fence a machine; upgrade it"));
  }
  absl::Status UnfenceNode(Term term, const NodeId& node, Generation generation) override {
    v1::UnfenceRequest request;
    request.set_term(term);
    request.set_node_id(node.value());
    request.set_generation(generation);
    v1::UnfenceResponse response;
    return CallAgent(&Stub::AsyncUnfence, request, &response);
  }
  absl::StatusOr<std::vector<FenceRecord>> ListFences() override {
    v1::ListFencesResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncListFences, v1::ListFencesRequest(), &response));
    std::vector<FenceRecord> fences;
    // Without what an older agent lists as a machine's and does not enforce: a listed machine is fenced.
    for (const v1::Fence& fence : response.fences())
      if (fence.of_machine() || !IsMachineId(NodeId(fence.node_id())))
        fences.push_back(wire::FromMessage(fence));
    return fences;
  }
  absl::StatusOr<std::vector<GrantSession>> ListSessions() override {
    v1::SessionsResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncSessions, v1::SessionsRequest(), &response));
    return ReadAll<GrantSession>(response.sessions());
  }
  // An older agent fails the call instead.
  absl::StatusOr<SeenSessions> ListSeenSessions() override {
    v1::SessionsRequest request;
    request.set_unseen_is_unknown(true);
    v1::SessionsResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncSessions, request, &response));
    return wire::FromMessage(response);
  }
  absl::StatusOr<std::vector<VolumeId>> ListWantedVolumes() override {
    v1::WantedResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncWanted, v1::WantedRequest(), &response));
    std::vector<VolumeId> wanted;
    for (const std::string& volume : response.volume_ids()) wanted.emplace_back(volume);
    return wanted;
  }

  absl::StatusOr<Connection> OpenHeartbeatLun(const HeartbeatLunRequest& request) override {
    v1::OpenHeartbeatLunRequest message;
    message.set_node_id(request.node.value());
    message.set_signs(request.signs);
    v1::OpenHeartbeatLunResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncOpenHeartbeatLun, message, &response));
    return FromMessage(response.connection());
  }
  absl::StatusOr<std::vector<LandedHeartbeat>> ListHeartbeats() override {
    v1::ListHeartbeatsResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncListHeartbeats, v1::ListHeartbeatsRequest(), &response));
    return ReadAll<LandedHeartbeat>(response.heartbeats());
  }

 private:
  absl::StatusOr<std::vector<Grant>> ListHolders(v1::ListGrantsRequest request) {
    KeptHolders::Kept kept = holders_.Get();
    request.set_known_version(kept.version);
    v1::ListGrantsResponse response;
    RETURN_IF_ERROR(CallAgent(&Stub::AsyncListGrants, request, &response));
    if (response.unchanged()) return kept.AsGrants();
    std::vector<Holder> holders;
    holders.reserve(static_cast<size_t>(response.grants_size()));
    for (const v1::Grant& grant : response.grants()) holders.emplace_back(wire::FromMessage(grant));
    kept = {response.version(), std::make_shared<const std::vector<Holder>>(std::move(holders))};
    holders_.KeepAnswer(kept);
    return kept.AsGrants();
  }

  template <class Request, class Response>
  absl::Status CallAgent(AgentCaller::Method<Request, Response> method, const Request& request,
                         Response* response) {
    return CallAgent(method, request, response, options_.call_timeout);
  }
  template <class Request, class Response>
  absl::Status CallAgent(AgentCaller::Method<Request, Response> method, const Request& request,
                         Response* response, absl::Duration timeout,
                         const std::function<bool()>& abandoned = nullptr) {
    return caller_.CallAgent(method, request, response, timeout, abandoned);
  }

  absl::StatusOr<Volume> AskForVolume(auto call, const auto& request) {
    v1::VolumeResponse response;
    RETURN_IF_ERROR(CallAgent(call, request, &response));
    return wire::FromMessage(response.volume());
  }

  // 0 means "no limit" on both sides; a limit that does not fit the wire's 32 bits is as good as none.
  static uint32_t LimitOf(size_t limit) {
    return static_cast<uint32_t>(std::min<size_t>(limit, std::numeric_limits<uint32_t>::max()));
  }

  template <class T, class Messages>
  static std::vector<T> ReadAll(const Messages& messages) {
    std::vector<T> all;
    all.reserve(static_cast<size_t>(messages.size()));
    for (const auto& message : messages) all.push_back(wire::FromMessage(message));
    return all;
  }

  const RemoteArrayOptions options_;
  AgentCaller caller_;
  KeptHolders holders_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteArray>> MakeRemoteArray(const RemoteArrayOptions& options) {
  ASSIGN_OR_RETURN(const auto credentials, MutualTlsClient(options.tls));
  return std::make_unique<RemoteArrayImpl>(options, credentials);
}

std::unique_ptr<RemoteArray> MakeUncheckedRemoteArray(const RemoteArrayOptions& options) {
  return std::make_unique<RemoteArrayImpl>(options, UncheckedMutualTlsClient(options.tls));
}

}  // namespace lunkeeper
