#include "fencing/coordinator/coordinator_service.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/connection_message.h"
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
// Every handler's answer is marked (answer_mark.h), so that a node can tell it from an error of gRPC's.
namespace lunkeeper {
namespace {

namespace v1 = coordinator::v1;

// A stream that ends within this time after its last heartbeat was closed by the node: its kernel lives. When
// it ends later, the machine may be dead, and the end may come from gRPC's own keep-alive timeout. Nodes send
// every half second.
constexpr absl::Duration kStreamIsCurrent = absl::Seconds(2);
// Token reviews for streams that may run at once. After a controller restarts all nodes open their streams
// together, each with a token to review; the limit spreads these calls over time.
constexpr size_t kReviewThreads = 4;

std::string TokenOf(const grpc::ServerContextBase& context) {
  constexpr char kScheme[] = "Bearer ";
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end() || !found->second.starts_with(kScheme)) return "";
  const grpc::string_ref token = found->second.substr(sizeof kScheme - 1);
  return {token.data(), token.size()};
}

absl::Status LeavingError() {
  return absl::UnavailableError("this controller is stopping; ask another replica");
}

// What all streams share.
struct StreamsContext {
  Authenticator& authenticator;
  HeartbeatSink* const sink;
  std::atomic<bool> leaving = false;
  boost::asio::thread_pool reviewers{kReviewThreads};
};

// The reading end of one node's stream.
class HeartbeatReader final : public grpc::ServerBidiReactor<v1::Heartbeat, v1::HeartbeatAnswer> {
 public:
  HeartbeatReader(StreamsContext& streams, std::string token) : streams_(streams) {
    boost::asio::post(streams_.reviewers, [this, token = std::move(token)] { BeginReading(token); });
  }

  void OnReadDone(bool ok) override {
    if (!ok) return EndStream();
    const absl::Status status = TakeHeartbeat();
    if (!status.ok()) return Finish(ToGrpcStatus(status));
    StartWrite(&answer_);
  }
  // A failed write needs no handling: the read that follows fails, too.
  void OnWriteDone(bool) override { StartRead(&message_); }
  void OnDone() override { delete this; }

 private:
  void BeginReading(const std::string& token) {
    absl::StatusOr<Authenticator::Caller> caller = streams_.authenticator.Authenticate(token);
    if (!caller.ok()) return Finish(ToGrpcStatus(caller.status()));
    caller_ = *std::move(caller);
    StartRead(&message_);
  }

  // Hands one heartbeat to the sink and fills in the answer. The first one fixes the node's id for the rest
  // of the stream; the token is checked for expiry with each, as a stream may outlive it by days.
  absl::Status TakeHeartbeat() {
    if (streams_.leaving) return LeavingError();
    const absl::Time now = absl::Now();
    if (caller_.expires <= now)
      return absl::UnauthenticatedError("the stream's token has expired; begin anew");
    if (node_.empty()) {
      ASSIGN_OR_RETURN(node_, ReadNode(message_.node(), caller_.node));
      LogInfo("coordinator", "a node's heartbeats begin", {{"node", node_.value()}});
    }
    if (message_.node() != node_.value()) return absl::InvalidArgumentError("node: changes within a stream");
    last_ = now;
    if (streams_.sink != nullptr) answer_ = WriteFences(streams_.sink->OnHeartbeat(ReadHeartbeat(message_)));
    return absl::OkStatus();
  }

  // A stream that ends because this replica is leaving says nothing about the node.
  void EndStream() {
    if (!node_.empty()) {
      const bool closed = absl::Now() - last_ < kStreamIsCurrent && !streams_.leaving;
      LogInfo("coordinator",
              closed ? "a node's heartbeats end: it closed them" : "a node's heartbeats end after a silence",
              {{"node", node_.value()}});
      if (closed && streams_.sink != nullptr) streams_.sink->OnClosed(node_);
    }
    Finish(grpc::Status::OK);
  }

  StreamsContext& streams_;
  Authenticator::Caller caller_;
  NodeId node_;  // empty before the first heartbeat
  absl::Time last_;
  v1::Heartbeat message_;
  v1::HeartbeatAnswer answer_;
};

class GrpcCoordinator final
    : public CoordinatorService,
      public v1::Coordinator::WithCallbackMethod_Heartbeats<v1::Coordinator::Service> {
 public:
  GrpcCoordinator(GrantStore& grants, Arrays& arrays, Authenticator& authenticator, HeartbeatSink* sink)
      : grants_(grants), arrays_(arrays), streams_{authenticator, sink} {}
  ~GrpcCoordinator() override { streams_.reviewers.join(); }

  grpc::Service* service() override { return this; }
  void SendNodesAway() override { streams_.leaving = true; }

  grpc::Status Acquire(grpc::ServerContext* context, const v1::AcquireRequest* request,
                       v1::Grant* response) override {
    AddAnswerMark(context);
    const absl::StatusOr<Grant> grant = AcquireGrant(*context, *request);
    if (!grant.ok()) return ToGrpcStatus(grant.status());
    *response = WriteGrant(*grant);
    return grpc::Status::OK;
  }

  grpc::Status Release(grpc::ServerContext* context, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse*) override {
    AddAnswerMark(context);
    return ToGrpcStatus(ReleaseGrant(*context, *request));
  }

  grpc::Status Held(grpc::ServerContext* context, const v1::HeldRequest* request,
                    v1::HeldResponse* response) override {
    AddAnswerMark(context);
    return ToGrpcStatus(ListHeldGrants(*context, *request, response));
  }

  grpc::Status OpenHeartbeatLun(grpc::ServerContext* context, const v1::OpenHeartbeatLunRequest* request,
                                devices::v1::Connection* response) override {
    AddAnswerMark(context);
    const absl::StatusOr<Connection> access = OpenLunOf(*context, *request);
    if (!access.ok()) return ToGrpcStatus(access.status());
    *response = ToMessage(*access);
    return grpc::Status::OK;
  }

  grpc::ServerBidiReactor<v1::Heartbeat, v1::HeartbeatAnswer>* Heartbeats(
      grpc::CallbackServerContext* context) override {
    return new HeartbeatReader(streams_, TokenOf(*context));  // gRPC's idiom: it deletes itself in OnDone
  }

 private:
  // The caller's node id: the machine comes from its token, the instance from the request.
  absl::StatusOr<NodeId> AuthenticateNode(const grpc::ServerContext& context, const std::string& node) {
    if (streams_.leaving) return LeavingError();
    ASSIGN_OR_RETURN(const auto caller, streams_.authenticator.Authenticate(TokenOf(context)));
    return ReadNode(node, caller.node);
  }

  absl::StatusOr<Grant> AcquireGrant(const grpc::ServerContext& context, const v1::AcquireRequest& request) {
    GrantRequest wanted;
    ASSIGN_OR_RETURN(wanted.node, AuthenticateNode(context, request.node()));
    ASSIGN_OR_RETURN(wanted.volume, ReadVolume(request.volume_id()));
    ASSIGN_OR_RETURN(wanted.access, ReadAccess(request.access()));
    // Checked by the array while it waits, so that a caller that hung up leaves its place in the queue.
    wanted.abandoned = [this, &context] { return context.IsCancelled() || streams_.leaving; };
    const absl::Duration wait =
        std::min(absl::Milliseconds(request.wait_ms()), absl::FromChrono(context.deadline()) - absl::Now());
    absl::StatusOr<Grant> grant = grants_.AcquireGrant(wanted, wait);
    // UNAVAILABLE instead of CANCELLED, so that the node asks another replica.
    return absl::IsCancelled(grant.status()) && streams_.leaving ? LeavingError() : grant;
  }

  absl::Status ReleaseGrant(const grpc::ServerContext& context, const v1::ReleaseRequest& request) {
    ASSIGN_OR_RETURN(const NodeId node, AuthenticateNode(context, request.node()));
    ASSIGN_OR_RETURN(const VolumeId volume, ReadVolume(request.volume_id()));
    // Zero would mean "whatever grant there is", which only the controller itself may release.
    if (request.generation() == 0) return absl::InvalidArgumentError("generation: is required");
    const absl::Status status = grants_.ReleaseGrant(volume, node, GrantOwner::kNode, request.generation());
    // A deleted volume has no grants, so a repeated release of one is done.
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  }

  absl::Status ListHeldGrants(const grpc::ServerContext& context, const v1::HeldRequest& request,
                              v1::HeldResponse* response) {
    ASSIGN_OR_RETURN(const NodeId node, AuthenticateNode(context, request.node()));
    VolumeId volume;
    if (!request.volume_id().empty()) {
      ASSIGN_OR_RETURN(volume, ReadVolume(request.volume_id()));
    }
    ASSIGN_OR_RETURN(const std::vector<Grant> grants, grants_.ListGrants({volume, node}));
    for (const Grant& grant : grants) {
      v1::HeldResponse::Grant* entry = response->add_grants();
      entry->set_volume_id(grant.volume.value());
      entry->set_generation(grant.generation);
      entry->set_target(grant.connection.target.value());
      entry->set_taken_by_orchestrator(grant.owner == GrantOwner::kOrchestrator);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Connection> OpenLunOf(const grpc::ServerContext& context,
                                       const v1::OpenHeartbeatLunRequest& request) {
    ASSIGN_OR_RETURN(const NodeId node, AuthenticateNode(context, request.node()));
    if (const auto array = FindArray(arrays_, request.array())) return array->fences().OpenHeartbeatLun(node);
    return absl::NotFoundError("array: there is none of this name here; correct the node's --array-name");
  }

  GrantStore& grants_;
  Arrays& arrays_;
  StreamsContext streams_;
};

}  // namespace

std::unique_ptr<CoordinatorService> MakeCoordinatorService(GrantStore& grants, Arrays& arrays,
                                                           Authenticator& authenticator,
                                                           HeartbeatSink* sink) {
  return std::make_unique<GrpcCoordinator>(grants, arrays, authenticator, sink);
}

}  // namespace lunkeeper
