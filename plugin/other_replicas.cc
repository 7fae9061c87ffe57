#include "plugin/other_replicas.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/clock.h"

namespace lunkeeper {
namespace {

namespace v1 = coordinator::v1;

constexpr uint64_t kOldest = uint64_t{1} << 50;

struct Call {
  std::shared_ptr<const Replica> replica;  // its channel outlives the call
  grpc::ClientContext context;
  v1::HearsRequest request;
  v1::HearsResponse response;
};

fencing::ReplicaSight ReadSight(const v1::HearsResponse& response) {
  const auto& sight = response.sight();
  // A number that makes no sense makes its sender no better.
  const auto count = [](uint32_t number) { return static_cast<int>(std::min(number, uint32_t{1} << 20)); };
  return {.replica = response.replica(),
          .age = fencing::Span::OfMilliseconds(static_cast<int64_t>(std::min(sight.age_ms(), kOldest))),
          .arrays = count(sight.arrays()),
          .nodes = count(sight.nodes())};
}

fencing::ReplicaAnswer ReadAnswer(const v1::HearsResponse& response) {
  fencing::ReplicaAnswer answer{.replica = response.replica(), .hears = response.hears()};
  if (response.has_sight()) answer.sight = ReadSight(response);
  answer.kernel_answers = response.kernel_answers();
  return answer;
}

// The answer comes on one of gRPC's threads.
void AskReplica(std::shared_ptr<const Replica> replica, uint16_t port, const NodeId& node,
                absl::Duration timeout, fencing::AskedReplica::Answered answered) {
  const absl::Time deadline = absl::Now() + timeout;
  const auto call = std::make_shared<Call>();
  call->replica = std::move(replica);
  call->request.set_node(node.value());
  call->request.set_port(port);
  // Without a token the replica refuses, which is no vote.
  call->replica->PrepareCall(&call->context, deadline).IgnoreError();
  call->context.set_deadline(absl::ToChronoTime(deadline));
  call->replica->stub->async()->Hears(&call->context, &call->request, &call->response,
                                      [call, answered = std::move(answered)](const grpc::Status& status) {
                                        if (!status.ok()) return answered(nullptr);
                                        const auto answer = ReadAnswer(call->response);
                                        answered(&answer);
                                      });
}

}  // namespace

fencing::ListAskedReplicas AskOverGrpc(ReplicaOptions options, uint16_t port) {
  return [replicas = std::make_shared<Replicas>(std::move(options)), port] {
    std::vector<fencing::AskedReplica> asked;
    for (auto& replica : replicas->ListReplicas(absl::InfinitePast()))
      asked.push_back({.address = replica->address,
                       .ask = [replica, port](const NodeId& node, absl::Duration timeout,
                                              fencing::AskedReplica::Answered answered) {
                         AskReplica(replica, port, node, timeout, std::move(answered));
                       }});
    return asked;
  };
}

}  // namespace lunkeeper
