#pragma once
// Asks the other controller replicas what they know of a node and what they see, all at the same time. A
// replica that does not answer within 200 ms, or a second if it is not asked about a node, or refuses, has no
// vote; this one is not counted.
// In between it asks each second, which keeps the connections open and its token known there, so that a vote
// needs neither a handshake nor the API server. It also keeps this replica known to the others. Thread-safe;
// never blocks. The destructor waits for the calls in progress.

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/periodic.h"
#include "fencing/core/types.h"

namespace lunkeeper::fencing {

// What a replica answers.
struct ReplicaAnswer {
  std::string replica;                     // its name
  bool hears = false;                      // the node that it is asked about
  std::optional<ReplicaSight> sight = {};  // none: it could not lead
  bool kernel_answers = false;             // of that node, whose stream to it has ended
};

// A replica that can be asked.
struct AskedReplica {
  using Answered = std::function<void(const ReplicaAnswer*)>;
  std::string address;
  // Never waits for the answer. Calls `answered` once, on another thread: with null if there was none in
  // time, or a refusal.
  std::function<void(const NodeId& node, absl::Duration timeout, Answered answered)> ask;
};
// Those to ask now; this one may be among them. Called by two threads; does not wait.
using ListAskedReplicas = std::function<std::vector<AskedReplica>()>;

class ReplicaPoll {
 public:
  using Answered = std::function<void(const ReplicaVotes&)>;
  // `self` is the name by which this replica answers.
  ReplicaPoll(ListAskedReplicas list, std::string self, Executor& executor = RealExecutor());
  ~ReplicaPoll();

  // Calls `answered` once, on another thread.
  void AskAll(const NodeId& node, Answered answered);

 private:
  void SendQuestions(const NodeId& node, absl::Duration timeout, Answered answered);
  // The addresses of the replicas that have answered lately. Called before a question to all `replicas`: the
  // calls count as running from now on.
  std::set<std::string> ListReached(const std::vector<AskedReplica>& replicas);
  void NoteEnd(const std::string& address, bool answered);
  void AwaitCalls();

  const ListAskedReplicas list_;
  const std::string self_;
  Executor& executor_;
  absl::Mutex mutex_;
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;                                 // calls
  std::map<std::string, absl::Duration> answered_at_ ABSL_GUARDED_BY(mutex_);  // by the steady clock
  const std::unique_ptr<Signal> call_ended_;
  const std::unique_ptr<Workers> asker_;  // one thread: to ask may take a file's reading
  std::unique_ptr<Periodic> keep_open_;
};

}  // namespace lunkeeper::fencing
