// A poll lives in the answers to its calls, on whatever threads these come. The last answer that is awaited
// passes the votes on; a later one only tells that its replica can be reached.

#include "fencing/failover/replica_poll.h"

#include <utility>

namespace lunkeeper::fencing {
namespace {

constexpr absl::Duration kVoteTimeout = absl::Milliseconds(200);
// What they see is asked each second, and nobody waits for it.
constexpr absl::Duration kSightTimeout = absl::Seconds(1);
// A token's first review asks the API server. This is no vote, and may take its time.
constexpr absl::Duration kKeepOpenEvery = absl::Seconds(1), kKeepOpenTimeout = absl::Seconds(5);

// Each replica is asked each second: one that has not answered for so long cannot be reached.
constexpr absl::Duration kReached = absl::Seconds(2);

class Poll {
 public:
  Poll(const std::string& self, size_t calls, size_t awaited, ReplicaPoll::Answered answered)
      : self_(self), left_(calls), awaited_(awaited), answered_(std::move(answered)) {}

  // Of each call once. The last answer that is awaited ends the poll.
  void NoteAnswer(const ReplicaAnswer* answer, bool awaited) {
    ReplicaVotes votes;
    {
      absl::MutexLock lock(&mutex_);
      --left_;
      if (awaited_ == 0) return;  // it has ended
      // The addresses may lead to this replica, too: its own answer is no vote.
      const bool other = answer != nullptr && answer->replica != self_;
      votes_.silent += answer != nullptr ? 0 : 1;
      votes_.answered += other ? 1 : 0;
      if (other && answer->hears) votes_.heard_by = answer->replica;
      if (other && answer->kernel_answers) votes_.kernel_answers_to = answer->replica;
      if (other && answer->sight) votes_.sights.push_back(*answer->sight);
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
  ReplicaVotes votes_ ABSL_GUARDED_BY(mutex_);
  const ReplicaPoll::Answered answered_;
};

}  // namespace

ReplicaPoll::ReplicaPoll(ListAskedReplicas list, std::string self, Executor& executor)
    : list_(std::move(list)),
      self_(std::move(self)),
      executor_(executor),
      call_ended_(executor.MakeSignal()),
      asker_(executor.MakeWorkers(1)),
      keep_open_(std::make_unique<Periodic>(
          kKeepOpenEvery, [this] { SendQuestions(NodeId(), kKeepOpenTimeout, [](const auto&) {}); },
          executor)) {}

ReplicaPoll::~ReplicaPoll() {
  // First what asks by itself, then the thread that sends; then every answer, since the calls use this
  // object.
  keep_open_.reset();
  asker_->Finish();
  AwaitCalls();
}

void ReplicaPoll::AskAll(const NodeId& node, Answered answered) {
  asker_->Post([this, node, answered = std::move(answered)]() mutable {
    SendQuestions(node, node.empty() ? kSightTimeout : kVoteTimeout, std::move(answered));
  });
}

void ReplicaPoll::SendQuestions(const NodeId& node, absl::Duration timeout, Answered answered) {
  const auto replicas = list_();
  if (replicas.empty()) return answered({});
  const auto reached = ListReached(replicas);
  const auto poll = std::make_shared<Poll>(
      self_, replicas.size(), reached.empty() ? replicas.size() : reached.size(), std::move(answered));
  for (const auto& replica : replicas) {
    const bool awaited = reached.empty() || reached.contains(replica.address);
    replica.ask(node, timeout, [this, poll, awaited, address = replica.address](const ReplicaAnswer* answer) {
      poll->NoteAnswer(answer, awaited);
      NoteEnd(address, answer != nullptr);
    });
  }
}

// A new one counts as reached until it has had the time to answer.
std::set<std::string> ReplicaPoll::ListReached(const std::vector<AskedReplica>& replicas) {
  const absl::Duration now = executor_.SteadyNow();
  std::map<std::string, absl::Duration> known;
  std::set<std::string> reached;
  absl::MutexLock lock(&mutex_);
  for (const auto& replica : replicas) {
    const auto before = answered_at_.find(replica.address);
    const auto at = known[replica.address] = before == answered_at_.end() ? now : before->second;
    if (now - at < kReached) reached.insert(replica.address);
  }
  answered_at_ = std::move(known);
  running_ += replicas.size();
  return reached;
}

void ReplicaPoll::NoteEnd(const std::string& address, bool answered) {
  absl::MutexLock lock(&mutex_);
  const auto known = answered_at_.find(address);
  if (answered && known != answered_at_.end()) known->second = executor_.SteadyNow();
  --running_;
  call_ended_->Set();  // still locked: the destructor waits for that
}

void ReplicaPoll::AwaitCalls() {
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      if (running_ == 0) return;
    }
    call_ended_->WaitFor(absl::InfiniteDuration());
  }
}

}  // namespace lunkeeper::fencing
