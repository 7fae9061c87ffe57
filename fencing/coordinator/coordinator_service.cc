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
#include "fencing/protocol/coordinator.grpc.pb.h"
#include "fencing/protocol/messages.h"

namespace lunkeeper {
namespace {

namespace v1 = coordinator::v1;

// Of a stream that ends this long after its last heartbeat nobody knows why it ended: its machine may be
// dead, and the end a time-out of ours.
constexpr absl::Duration kCurrent = absl::Seconds(2);
// Reviews that may be under way at once for streams, which must not block gRPC's threads.
constexpr size_t kReviewers = 4;

std::string TokenOf(const grpc::ServerContextBase& context) {
  constexpr char kScheme[] = "Bearer ";
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end() || !found->second.starts_with(kScheme)) return "";
  const grpc::string_ref token = found->second.substr(sizeof kScheme - 1);
  return {token.data(), token.size()};
}

absl::Status Leaving() { return absl::UnavailableError("this controller is stopping; ask another replica"); }

// What the streams share.
struct HeartbeatLinks {
  Authenticator& authenticator;
  HeartbeatSink* const sink;
  std::atomic<bool> leaving = false;
  boost::asio::thread_pool reviewers{kReviewers};
};

// One node's stream. gRPC calls it for one event at a time; it deletes itself after the last.
class HeartbeatReader final : public grpc::ServerBidiReactor<v1::Heartbeat, v1::HeartbeatAnswer> {
 public:
  HeartbeatReader(HeartbeatLinks& hall, std::string token) : hall_(hall) {
    boost::asio::post(hall_.reviewers, [this, token = std::move(token)] { Begin(token); });
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End();
    const absl::Status status = Take();
    if (!status.ok()) return Finish(ToGrpcStatus(status));
    StartWrite(&answer_);
  }
  void OnWriteDone(bool) override { StartRead(&message_); }  // which fails if the write did
  void OnDone() override { delete this; }

 private:
  void Begin(const std::string& token) {
    absl::StatusOr<Authenticator::Caller> caller = hall_.authenticator.Authenticate(token);
    if (!caller.ok()) return Finish(ToGrpcStatus(caller.status()));
    caller_ = *std::move(caller);
    StartRead(&message_);
  }

  absl::Status Take() {
    if (hall_.leaving) return Leaving();
    const absl::Time now = absl::Now();
    if (caller_.expires <= now)
      return absl::UnauthenticatedError("the stream's token has expired; begin anew");
    if (node_.empty()) {
      ASSIGN_OR_RETURN(node_, ReadNode(message_.node(), caller_.node));
      LogInfo("coordinator", "a node's heartbeats begin", {{"node", node_.value()}});
    }
    if (message_.node() != node_.value()) return absl::InvalidArgumentError("node: changes within a stream");
    last_ = now;
    if (hall_.sink != nullptr) answer_ = WriteFences(hall_.sink->OnHeartbeat(ReadHeartbeat(message_)));
    return absl::OkStatus();
  }

  void End() {
    if (!node_.empty()) {
      const bool closed = absl::Now() - last_ < kCurrent && !hall_.leaving;
      LogInfo("coordinator",
              closed ? "a node's heartbeats end: it closed them" : "a node's heartbeats end after a silence",
              {{"node", node_.value()}});
      if (closed && hall_.sink != nullptr) hall_.sink->OnClosed(node_);
    }
    Finish(grpc::Status::OK);
  }

  HeartbeatLinks& hall_;
  Authenticator::Caller caller_;
  NodeId node_;  // empty before the first heartbeat
  absl::Time last_;
  v1::Heartbeat message_;
  v1::HeartbeatAnswer answer_;
};

class Service final : public CoordinatorService,
                      public v1::Coordinator::WithCallbackMethod_Heartbeats<v1::Coordinator::Service> {
 public:
  Service(AccessControl& array, Arrays& arrays, Authenticator& authenticator, HeartbeatSink* sink)
      : array_(array), arrays_(arrays), hall_{authenticator, sink} {}
  ~Service() override { hall_.reviewers.join(); }

  grpc::Service* service() override { return this; }
  void Leave() override { hall_.leaving = true; }

  grpc::Status Acquire(grpc::ServerContext* context, const v1::AcquireRequest* request,
                       v1::Grant* response) override {
    const absl::StatusOr<Grant> grant = Acquire(*context, *request);
    if (!grant.ok()) return ToGrpcStatus(grant.status());
    *response = WriteGrant(*grant);
    return grpc::Status::OK;
  }

  grpc::Status Release(grpc::ServerContext* context, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse*) override {
    return ToGrpcStatus(Release(*context, *request));
  }

  grpc::Status Held(grpc::ServerContext* context, const v1::HeldRequest* request,
                    v1::HeldResponse* response) override {
    return ToGrpcStatus(Held(*context, *request, response));
  }

  grpc::Status OpenHeartbeatLun(grpc::ServerContext* context, const v1::OpenHeartbeatLunRequest* request,
                                devices::v1::Connection* response) override {
    const absl::StatusOr<Connection> access = OpenHeartbeatLun(*context, *request);
    if (!access.ok()) return ToGrpcStatus(access.status());
    *response = ToMessage(*access);
    return grpc::Status::OK;
  }

  grpc::ServerBidiReactor<v1::Heartbeat, v1::HeartbeatAnswer>* Heartbeats(
      grpc::CallbackServerContext* context) override {
    return new HeartbeatReader(hall_, TokenOf(*context));  // deletes itself
  }

 private:
  absl::StatusOr<NodeId> Caller(const grpc::ServerContext& context, const std::string& node) {
    if (hall_.leaving) return Leaving();
    ASSIGN_OR_RETURN(const auto caller, hall_.authenticator.Authenticate(TokenOf(context)));
    return ReadNode(node, caller.node);
  }

  absl::StatusOr<Grant> Acquire(const grpc::ServerContext& context, const v1::AcquireRequest& request) {
    GrantRequest wanted;
    ASSIGN_OR_RETURN(wanted.node, Caller(context, request.node()));
    ASSIGN_OR_RETURN(wanted.volume, ReadVolume(request.volume_id()));
    ASSIGN_OR_RETURN(wanted.access, ReadAccess(request.access()));
    wanted.abandoned = [this, &context] { return context.IsCancelled() || hall_.leaving; };
    const absl::Duration wait =
        std::min(absl::Milliseconds(request.wait_ms()), absl::FromChrono(context.deadline()) - absl::Now());
    absl::StatusOr<Grant> grant = array_.Acquire(wanted, wait);
    return absl::IsCancelled(grant.status()) && hall_.leaving ? Leaving() : grant;
  }

  absl::Status Release(const grpc::ServerContext& context, const v1::ReleaseRequest& request) {
    ASSIGN_OR_RETURN(const NodeId node, Caller(context, request.node()));
    ASSIGN_OR_RETURN(const VolumeId volume, ReadVolume(request.volume_id()));
    if (request.generation() == 0) return absl::InvalidArgumentError("generation: is required");
    const absl::Status status = array_.Release(volume, node, GrantOwner::kNode, request.generation());
    return absl::IsNotFound(status) ? absl::OkStatus() : status;  // a volume that is gone has no grants
  }

  absl::Status Held(const grpc::ServerContext& context, const v1::HeldRequest& request,
                    v1::HeldResponse* response) {
    ASSIGN_OR_RETURN(const NodeId node, Caller(context, request.node()));
    VolumeId volume;
    if (!request.volume_id().empty()) {
      ASSIGN_OR_RETURN(volume, ReadVolume(request.volume_id()));
    }
    ASSIGN_OR_RETURN(const std::vector<Grant> grants, array_.ListGrants({volume, node}));
    for (const Grant& grant : grants) {
      v1::HeldResponse::Grant* entry = response->add_grants();
      entry->set_volume_id(grant.volume.value());
      entry->set_generation(grant.generation);
      entry->set_target(grant.connection.target.value());
      entry->set_taken_by_orchestrator(grant.owner == GrantOwner::kOrchestrator);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Connection> OpenHeartbeatLun(const grpc::ServerContext& context,
                                              const v1::OpenHeartbeatLunRequest& request) {
    ASSIGN_OR_RETURN(const NodeId node, Caller(context, request.node()));
    if (const auto array = FindArray(arrays_, request.array())) return array->OpenHeartbeatLun(node);
    return absl::NotFoundError("array: there is none of this name here; correct the node's --array-name");
  }

  AccessControl& array_;
  Arrays& arrays_;
  HeartbeatLinks hall_;
};

}  // namespace

std::unique_ptr<CoordinatorService> MakeCoordinatorService(AccessControl& array, Arrays& arrays,
                                                           Authenticator& authenticator,
                                                           HeartbeatSink* sink) {
  return std::make_unique<Service>(array, arrays, authenticator, sink);
}

}  // namespace lunkeeper
