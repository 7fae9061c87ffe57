// A poll lives in the callbacks of its calls, on gRPC's threads. The last answer that is awaited passes the
// votes on; a later one only tells that its replica can be reached.

#include "plugin/replica_poll.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"

namespace lunkeeper {
namespace {

namespace v1 = coordinator::v1;

constexpr absl::Duration kVoteTimeout = absl::Milliseconds(200);
// What they see is asked each second, and nobody waits for it.
constexpr absl::Duration kSightTimeout = absl::Seconds(1);
// A token's first review asks the API server. This is no vote, and may take its time.
constexpr absl::Duration kKeepOpenEvery = absl::Seconds(1), kKeepOpenTimeout = absl::Seconds(5);

// Each replica is asked each second: one that has not answered for so long cannot be reached.
constexpr std::chrono::seconds kReached{2};

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

class Poll {
 public:
  Poll(const std::string& self, size_t calls, size_t awaited, ReplicaPoll::Answered answered)
      : self_(self), left_(calls), awaited_(awaited), answered_(std::move(answered)) {}

  // Of each call once; `response` counts if it is ok. The last answer that is awaited ends the poll.
  void NoteAnswer(bool ok, const v1::HearsResponse& response, bool awaited) {
    fencing::ReplicaVotes votes;
    {
      absl::MutexLock lock(&mutex_);
      --left_;
      if (awaited_ == 0) return;  // it has ended
      // The addresses may lead to this replica, too: its own answer is no vote.
      const bool other = ok && response.replica() != self_;
      votes_.silent += ok ? 0 : 1;
      votes_.answered += other ? 1 : 0;
      if (other && response.hears()) votes_.heard_by = response.replica();
      if (other && response.has_sight()) votes_.sights.push_back(ReadSight(response));
      awaited_ -= awaited ? 1 : 0;
      if (awaited_ > 0) return;
      votes = votes_;
      votes.silent += static_cast<int>(left_);
    }
    answered_(votes);
  }

 private:
  const std::string self_;
  absl::Mutex mutex_;
  size_t left_ ABSL_GUARDED_BY(mutex_), awaited_ ABSL_GUARDED_BY(mutex_);
  fencing::ReplicaVotes votes_ ABSL_GUARDED_BY(mutex_);
  const ReplicaPoll::Answered answered_;
};

}  // namespace

ReplicaPoll::ReplicaPoll(ReplicaOptions options, std::string self, uint16_t port)
    : self_(std::move(self)),
      port_(port),
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
    SendQuestions(node, node.empty() ? kSightTimeout : kVoteTimeout, std::move(answered));
  });
}

void ReplicaPoll::SendQuestions(const NodeId& node, absl::Duration timeout, Answered answered) {
  const absl::Time deadline = absl::Now() + timeout;
  const auto replicas = replicas_.ListReplicas(absl::InfinitePast());
  if (replicas.empty()) return answered({});
  const auto reached = ListReached(replicas);
  const auto poll = std::make_shared<Poll>(
      self_, replicas.size(), reached.empty() ? replicas.size() : reached.size(), std::move(answered));
  for (const auto& replica : replicas) {
    const bool awaited = reached.empty() || reached.contains(replica->address);
    const auto call = std::make_shared<Call>();
    call->replica = replica;
    call->request.set_node(node.value());
    call->request.set_port(port_);
    // Without a token the replica refuses, which is no vote.
    replicas_.PrepareCall(&call->context, deadline).IgnoreError();
    call->context.set_deadline(absl::ToChronoTime(deadline));
    replica->stub->async()->Hears(&call->context, &call->request, &call->response,
                                  [this, call, poll, awaited](const grpc::Status& status) {
                                    poll->NoteAnswer(status.ok(), call->response, awaited);
                                    NoteEnd(call->replica->address, status.ok());
                                  });
  }
}

// A new one counts as reached until it has had the time to answer.
std::set<std::string> ReplicaPoll::ListReached(const std::vector<std::shared_ptr<const Replica>>& replicas) {
  const auto now = std::chrono::steady_clock::now();
  std::map<std::string, std::chrono::steady_clock::time_point> known;
  std::set<std::string> reached;
  absl::MutexLock lock(&mutex_);
  for (const auto& replica : replicas) {
    const auto before = answered_at_.find(replica->address);
    const auto at = known[replica->address] = before == answered_at_.end() ? now : before->second;
    if (now - at < kReached) reached.insert(replica->address);
  }
  answered_at_ = std::move(known);
  running_ += replicas.size();
  return reached;
}

void ReplicaPoll::NoteEnd(const std::string& address, bool answered) {
  absl::MutexLock lock(&mutex_);
  const auto known = answered_at_.find(address);
  if (answered && known != answered_at_.end()) known->second = std::chrono::steady_clock::now();
  --running_;
}

}  // namespace lunkeeper
