#pragma once
// Asks the other controller replicas whether they hear a node and what they see, all at the same time. A
// replica that does not answer within 200 ms, or a second if it is not asked about a node, refuses, or is too
// old to know the question has no vote; this one is not counted.
// In between it asks each second, which keeps the connections open and its token known there, so that a vote
// needs neither a handshake nor the API server. It also keeps this replica known to the others. Thread-safe;
// never blocks. The destructor waits for the calls in progress.

#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/periodic.h"
#include "fencing/agent/replicas.h"
#include "fencing/core/event.h"

namespace lunkeeper {

class ReplicaPoll {
 public:
  using Answered = std::function<void(const fencing::ReplicaVotes&)>;
  // `self` is the name by which this replica answers, `port` where it serves nodes: the others tell them.
  ReplicaPoll(ReplicaOptions options, std::string self, uint16_t port);
  ~ReplicaPoll();

  // Calls `answered` once, on another thread.
  void AskAll(const NodeId& node, Answered answered);

 private:
  void SendQuestions(const NodeId& node, absl::Duration timeout, Answered answered);
  // The addresses of the replicas that have answered lately. Called before a question to all `replicas`: the
  // calls count as running from now on.
  std::set<std::string> ListReached(const std::vector<std::shared_ptr<const Replica>>& replicas);
  void NoteEnd(const std::string& address, bool answered);

  const std::string self_;
  const uint16_t port_;
  Replicas replicas_;
  absl::Mutex mutex_;
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;  // calls
  std::map<std::string, std::chrono::steady_clock::time_point> answered_at_ ABSL_GUARDED_BY(mutex_);
  boost::asio::thread_pool asker_{1};  // reads the token's file
  std::unique_ptr<Periodic> keep_open_;
};

}  // namespace lunkeeper
