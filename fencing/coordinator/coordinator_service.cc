#include "fencing/coordinator/coordinator_service.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/connection_message.h"
#include "fencing/coordinator/known_replicas.h"
#include "fencing/coordinator/node_requests.h"
#include "fencing/protocol/answer_mark.h"
#include "fencing/protocol/coordinator.grpc.pb.h"
#include "fencing/protocol/messages.h"

// Unary calls are handled synchronously, each on a thread of the server's pool: an Acquire may wait for
// minutes. Heartbeat streams are callback reactors on gRPC's own threads, so that 10,000 of them need no
// threads and never queue behind Acquires. A reactor must not block, so tokens of streams are reviewed on
// `StreamsContext::reviewers`.
//
// A stream's life, on one event at a time:
//
//   constructed -> token reviewed -> StartRead -> OnReadDone: TakeHeartbeat -> StartWrite -> OnWriteDone -+
//                      | refused        ^                 | read failed, or heartbeat refused             |
//                      v                +-----------------|-----------------------------------------------+
//                    Finish -> OnDone (deletes itself) <--+ EndStream
//
// What callers can cost is bounded. A token that is not known needs a place for its review, and an address
// has few (Authenticator); a stream that was reset meanwhile is not reviewed. After that a machine's budget
// counts (NodeBudgets).
//
// Every handler's answer is marked (answer_mark.h), so that a node can tell it from an error of gRPC's; only
// RESOURCE_EXHAUSTED for a budget is not, since another replica may have room.
namespace lunkeeper {
namespace {

namespace v1 = coordinator::v1;

// A stream that ends within this time after its last heartbeat was closed by the node: its kernel lives. When
// it ends later, the machine may be dead, and the end may come from gRPC's own keep-alive timeout. Nodes send
// every half second.
constexpr std::chrono::seconds kStreamIsCurrent(2);
// Token reviews for streams that may run at once. After a controller restarts all nodes open their streams
// together, each with a token to review; the limit spreads these calls over time.
constexpr size_t kReviewThreads = 4;

// In the call's metadata, which live as long as the call.
absl::string_view TokenOf(const grpc::ServerContextBase& context) {
  constexpr char kScheme[] = "Bearer ";
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end() || !found->second.starts_with(kScheme)) return "";
  const grpc::string_ref token = found->second.substr(sizeof kScheme - 1);
  return {token.data(), token.size()};
}

// Without the port: ipv4:10.0.0.1.
std::string AddressOf(const grpc::ServerContextBase& context) {
  const std::string peer = context.peer();
  return peer.substr(0, peer.rfind(':'));
}

// What all streams share.
struct StreamsContext {
  Authenticator& authenticator;
  HeartbeatSink* const sink;
  const NodeRequests& requests;  // which know whether this replica is leaving
  NodeBudgets budgets;
  KnownReplicas replicas;
  boost::asio::thread_pool reviewers{kReviewThreads};
};

// The reading end of one node's stream.
class HeartbeatReader final : public grpc::ServerBidiReactor<v1::Heartbeat, v1::HeartbeatAnswer> {
 public:
  HeartbeatReader(StreamsContext& streams, grpc::CallbackServerContext* context)
      : streams_(streams), context_(context) {
    if (auto caller = streams_.authenticator.RecallCaller(TokenOf(*context_))) {
      BeginReading(*caller);
    } else if (auto place = streams_.authenticator.TakeReviewPlace(AddressOf(*context_)); !place.ok()) {
      Finish(ToGrpcStatus(place.status()));
    } else {
      boost::asio::post(streams_.reviewers, [this, place = *std::move(place)] { ReviewToken(place); });
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return EndStream();
    const absl::Status status = TakeHeartbeat();
    if (!status.ok()) return Finish(ToGrpcStatus(status));
    StartWrite(&answer_);
  }
  // A failed write needs no handling: the read that follows fails, too.
  void OnWriteDone(bool) override { StartRead(&message_); }
  void OnCancel() override { reset_ = true; }
  void OnDone() override {
    if (number_ != 0) streams_.budgets.EndStream(machine_, number_);
    delete this;
  }

 private:
  void ReviewToken(const Authenticator::ReviewPlace& place) {
    // A stream that was reset leaves the queue without costing the API server anything.
    if (reset_) return Finish(grpc::Status::CANCELLED);
    BeginReading(streams_.authenticator.ReviewCaller(std::string(TokenOf(*context_)), place));
  }

  void BeginReading(const absl::StatusOr<Authenticator::Caller>& caller) {
    if (!caller.ok()) return Finish(ToGrpcStatus(caller.status()));
    machine_ = caller->node;
    const auto number = streams_.budgets.BeginStream(machine_, [this] {
      replaced_ = true;
      context_->TryCancel();
    });
    if (!number.ok()) return Finish(ToGrpcStatus(number.status()));
    number_ = *number;
    StartRead(&message_);
  }

  // Hands one heartbeat to the sink and fills in the answer. The first one fixes the node's id for the rest
  // of the stream; the token is recalled with each, as a stream may outlive it by days.
  absl::Status TakeHeartbeat() {
    if (streams_.requests.leaving()) return NodeRequests::LeavingError();
    if (!streams_.budgets.TakeHeartbeat(machine_))
      return absl::InvalidArgumentError("heartbeats: more of them than any node sends");
    const auto caller = streams_.authenticator.RecallCaller(TokenOf(*context_));
    if (!caller || !caller->ok())
      return absl::UnauthenticatedError("the stream's token is good no more; begin anew with the next one");
    ASSIGN_OR_RETURN(fencing::Heartbeat heartbeat, ReadHeartbeat(message_));
    if (node_.empty()) {
      ASSIGN_OR_RETURN(const NodeId node, ReadNode(message_.node(), machine_));
      RETURN_IF_ERROR(streams_.budgets.NoteInstance(machine_, node.value()));
      node_ = node;
      LogInfo("coordinator", "a node's heartbeats begin", {{"node", node_.value()}});
    }
    if (message_.node() != node_.value()) return absl::InvalidArgumentError("node: changes within a stream");
    last_ = std::chrono::steady_clock::now();
    if (streams_.sink == nullptr) return absl::OkStatus();
    // First, as it needs the heartbeat's list of devices. What it says can neither end the stream nor delay
    // the answer: it is for people.
    streams_.sink->OnDetails(heartbeat, ReadDetails(message_));
    answer_ = WriteAnswer(streams_.sink->OnHeartbeat(std::move(heartbeat)), streams_.sink->LimitsOf(node_),
                          streams_.sink->RemovedArrays(), streams_.replicas.ListReplicas());
    return absl::OkStatus();
  }

  // A stream that this replica ends says nothing about the node.
  void EndStream() {
    if (node_.empty()) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "a stream without a heartbeat"});
    if (!replaced_) {
      const bool closed =
          std::chrono::steady_clock::now() - last_ < kStreamIsCurrent && !streams_.requests.leaving();
      LogInfo("coordinator",
              closed ? "a node's heartbeats end: it closed them" : "a node's heartbeats end after a silence",
              {{"node", node_.value()}});
      if (closed && streams_.sink != nullptr) streams_.sink->OnClosed(node_);
    }
    Finish(grpc::Status::OK);
  }

  StreamsContext& streams_;
  grpc::CallbackServerContext* const context_;
  std::string machine_;  // the token's
  uint64_t number_ = 0;  // among the machine's streams; 0: not one of them yet
  std::atomic<bool> reset_ = false, replaced_ = false;
  NodeId node_;  // empty before the first heartbeat
  std::chrono::steady_clock::time_point last_;
  v1::Heartbeat message_;
  v1::HeartbeatAnswer answer_;
};

class GrpcCoordinator final
    : public CoordinatorService,
      public v1::Coordinator::WithCallbackMethod_Heartbeats<v1::Coordinator::Service> {
 public:
  GrpcCoordinator(GrantStore& grants, Arrays& arrays, Authenticator& authenticator, HeartbeatSink* sink,
                  const CoordinatorLimits& limits)
      : controllers_(limits.controllers),
        requests_(grants, arrays, limits.uses, limits.most_volumes),
        streams_{.authenticator = authenticator,
                 .sink = sink,
                 .requests = requests_,
                 .budgets = NodeBudgets(limits.node),
                 .replicas = {}} {}
  ~GrpcCoordinator() override { streams_.reviewers.join(); }

  grpc::Service* service() override { return this; }
  void SendNodesAway() override { requests_.Leave(); }

  grpc::Status Acquire(grpc::ServerContext* context, const v1::AcquireRequest* request,
                       v1::Grant* response) override {
    return AnswerNode(context, request->node(), [&](const NodeId& node) -> absl::Status {
      ASSIGN_OR_RETURN(const Grant grant, AcquireGrant(*context, node, *request));
      *response = WriteGrant(grant);
      return absl::OkStatus();
    });
  }

  grpc::Status Release(grpc::ServerContext* context, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse*) override {
    return AnswerNode(context, request->node(),
                      [&](const NodeId& node) { return ReleaseGrant(node, *request); });
  }

  grpc::Status Held(grpc::ServerContext* context, const v1::HeldRequest* request,
                    v1::HeldResponse* response) override {
    return AnswerNode(context, request->node(),
                      [&](const NodeId& node) { return ListHeldGrants(node, *request, response); });
  }

  grpc::Status OpenHeartbeatLun(grpc::ServerContext* context, const v1::OpenHeartbeatLunRequest* request,
                                devices::v1::Connection* response) override {
    return AnswerNode(context, request->node(), [&](const NodeId& node) -> absl::Status {
      ASSIGN_OR_RETURN(const Connection access,
                       requests_.OpenHeartbeatLun(node, request->array(), request->signs()));
      *response = ToMessage(access);
      return absl::OkStatus();
    });
  }

  grpc::ServerBidiReactor<v1::Heartbeat, v1::HeartbeatAnswer>* Heartbeats(
      grpc::CallbackServerContext* context) override {
    return new HeartbeatReader(streams_, context);  // gRPC's idiom: it deletes itself in OnDone
  }

  // Of a node's own budget nothing is taken: the caller is no node. A replica that is stopping hears nobody
  // for long any more, so it has no vote.
  grpc::Status Hears(grpc::ServerContext* context, const v1::HearsRequest* request,
                     v1::HearsResponse* response) override {
    if (controllers_ == nullptr) return {grpc::StatusCode::UNIMPLEMENTED, "this replica answers nobody"};
    if (streams_.requests.leaving()) return ToGrpcStatus(NodeRequests::LeavingError());
    const auto caller = controllers_->Authenticate(std::string(TokenOf(*context)), AddressOf(*context));
    if (!caller.ok()) return ToGrpcStatus(caller.status());
    streams_.replicas.NoteReplica(context->peer(), request->port());
    const auto hears = streams_.sink ? streams_.sink->Hears(NodeId(request->node())) : std::nullopt;
    if (!hears) return {grpc::StatusCode::UNIMPLEMENTED, "there is no failover here"};
    response->set_hears(!request->node().empty() && *hears);
    response->set_kernel_answers(!request->node().empty() &&
                                 streams_.sink->KernelAnswers(NodeId(request->node())));
    response->set_replica(streams_.sink->ReplicaName());
    if (const auto sight = streams_.sink->Sight()) {
      response->mutable_sight()->set_age_ms(static_cast<uint64_t>(sight->age.milliseconds()));
      response->mutable_sight()->set_arrays(static_cast<uint32_t>(sight->arrays));
      response->mutable_sight()->set_nodes(static_cast<uint32_t>(sight->nodes));
    }
    return grpc::Status::OK;
  }

 private:
  // Does the work for the calling node, whose machine comes from its token and its instance from the request.
  // An answer without the mark sends the node to another replica.
  grpc::Status AnswerNode(grpc::ServerContext* context, const std::string& claimed,
                          absl::FunctionRef<absl::Status(const NodeId&)> work) {
    NodeBudgets::Running running;
    const absl::StatusOr<NodeId> node = AdmitNode(*context, claimed, &running);
    if (!absl::IsResourceExhausted(node.status())) AddAnswerMark(context);
    return ToGrpcStatus(node.ok() ? work(*node) : node.status());
  }

  absl::StatusOr<NodeId> AdmitNode(const grpc::ServerContext& context, const std::string& claimed,
                                   NodeBudgets::Running* running) {
    if (streams_.requests.leaving()) return NodeRequests::LeavingError();
    ASSIGN_OR_RETURN(const auto caller,
                     streams_.authenticator.Authenticate(std::string(TokenOf(context)), AddressOf(context)));
    ASSIGN_OR_RETURN(*running, streams_.budgets.BeginCall(caller.node));
    ASSIGN_OR_RETURN(NodeId node, ReadNode(claimed, caller.node));
    RETURN_IF_ERROR(streams_.budgets.NoteInstance(caller.node, node.value()));
    return node;
  }

  absl::StatusOr<Grant> AcquireGrant(const grpc::ServerContext& context, const NodeId& node,
                                     const v1::AcquireRequest& request) {
    GrantRequest wanted;
    wanted.node = node;
    ASSIGN_OR_RETURN(wanted.volume, ReadVolume(request.volume_id()));
    ASSIGN_OR_RETURN(wanted.access, ReadAccess(request.access()));
    ASSIGN_OR_RETURN(wanted.mode, ReadMode(request.mode()));
    wanted.abandoned = [&context] { return context.IsCancelled(); };
    const absl::Duration wait =
        std::min(absl::Milliseconds(request.wait_ms()), absl::FromChrono(context.deadline()) - absl::Now());
    return requests_.AcquireGrant(wanted, wait);
  }

  absl::Status ReleaseGrant(const NodeId& node, const v1::ReleaseRequest& request) {
    ASSIGN_OR_RETURN(const VolumeId volume, ReadVolume(request.volume_id()));
    return requests_.ReleaseGrant(node, volume, request.generation());
  }

  absl::Status ListHeldGrants(const NodeId& node, const v1::HeldRequest& request,
                              v1::HeldResponse* response) {
    VolumeId volume;
    if (!request.volume_id().empty()) {
      ASSIGN_OR_RETURN(volume, ReadVolume(request.volume_id()));
    }
    ASSIGN_OR_RETURN(const std::vector<Grant> grants, requests_.ListGrants(node, volume));
    for (const Grant& grant : grants) {
      v1::HeldResponse::Grant* entry = response->add_grants();
      entry->set_volume_id(grant.volume.value());
      entry->set_generation(grant.generation);
      entry->set_target(grant.connection.target.value());
      entry->set_taken_by_orchestrator(grant.owner == GrantOwner::kOrchestrator);
    }
    return absl::OkStatus();
  }

  Authenticator* const controllers_;
  NodeRequests requests_;
  StreamsContext streams_;
};

}  // namespace

std::unique_ptr<CoordinatorService> MakeCoordinatorService(GrantStore& grants, Arrays& arrays,
                                                           Authenticator& authenticator, HeartbeatSink* sink,
                                                           const CoordinatorLimits& limits) {
  return std::make_unique<GrpcCoordinator>(grants, arrays, authenticator, sink, limits);
}

}  // namespace lunkeeper
