#include "plugin/replica_poll.h"

#include <boost/asio/post.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"

// A poll lives in the callbacks of its calls, on gRPC's threads; the last of them passes the votes on.
namespace lunkeeper {
namespace {

namespace v1 = coordinator::v1;

constexpr absl::Duration kVoteTimeout = absl::Milliseconds(200);
// A token's first review asks the API server. This is no vote, and may take its time.
constexpr absl::Duration kKeepOpenEvery = absl::Seconds(5), kKeepOpenTimeout = absl::Seconds(5);

struct Call {
  std::shared_ptr<const Replica> replica;  // its channel outlives the call
  grpc::ClientContext context;
  v1::HearsRequest request;
  v1::HearsResponse response;
};

class Poll {
 public:
  Poll(const std::string& self, size_t calls, ReplicaPoll::Answered answered)
      : self_(self), waiting_(calls), answered_(std::move(answered)) {}

  // Of each call once; `hears` and `replica` count if it is ok.
  void NoteAnswer(bool ok, bool hears, const std::string& replica) {
    fencing::ReplicaVotes votes;
    {
      absl::MutexLock lock(&mutex_);
      // The addresses may lead to this replica, too: its own answer is no vote.
      const bool other = ok && replica != self_;
      votes_.silent += ok ? 0 : 1;
      votes_.answered += other ? 1 : 0;
      if (other && hears) votes_.heard_by = replica;
      if (--waiting_ > 0) return;
      votes = votes_;
    }
    answered_(votes);
  }

 private:
  const std::string self_;
  absl::Mutex mutex_;
  size_t waiting_ ABSL_GUARDED_BY(mutex_);
  fencing::ReplicaVotes votes_ ABSL_GUARDED_BY(mutex_);
  const ReplicaPoll::Answered answered_;
};

}  // namespace

ReplicaPoll::ReplicaPoll(ReplicaOptions options, std::string self)
    : self_(std::move(self)),
      replicas_(std::move(options)),
      keep_open_(std::make_unique<Periodic>(
          kKeepOpenEvery, [this] { SendQuestions(NodeId(), kKeepOpenTimeout, [](const auto&) {}); })) {}

ReplicaPoll::~ReplicaPoll() {
  // First what asks by itself, then the thread that sends; then every answer, since the calls use this
  // object.
  keep_open_.reset();
  asker_.join();
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return running_ == 0; };
  mutex_.Await(absl::Condition(&idle));
}

void ReplicaPoll::AskAll(const NodeId& node, Answered answered) {
  boost::asio::post(asker_, [this, node, answered = std::move(answered)]() mutable {
    SendQuestions(node, kVoteTimeout, std::move(answered));
  });
}

void ReplicaPoll::SendQuestions(const NodeId& node, absl::Duration timeout, Answered answered) {
  const absl::Time deadline = absl::Now() + timeout;
  const auto replicas = replicas_.ListReplicas(absl::InfinitePast());
  if (replicas.empty()) return answered({});
  {
    absl::MutexLock lock(&mutex_);
    ++running_;
  }
  const auto poll = std::make_shared<Poll>(
      self_, replicas.size(), [this, answered = std::move(answered)](const fencing::ReplicaVotes& votes) {
        answered(votes);
        absl::MutexLock lock(&mutex_);
        --running_;
      });
  for (const auto& replica : replicas) {
    const auto call = std::make_shared<Call>();
    call->replica = replica;
    call->request.set_node(node.value());
    // Without a token the replica refuses, which is no vote.
    replicas_.PrepareCall(&call->context, deadline).IgnoreError();
    call->context.set_deadline(absl::ToChronoTime(deadline));
    replica->stub->async()->Hears(
        &call->context, &call->request, &call->response, [call, poll](const grpc::Status& status) {
          poll->NoteAnswer(status.ok(), call->response.hears(), call->response.replica());
        });
  }
}

}  // namespace lunkeeper
