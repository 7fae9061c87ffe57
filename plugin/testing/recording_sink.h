#pragma once
// Where a controller's heartbeats go in tests. Thread-safe.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "fencing/protocol/heartbeat_sink.h"

namespace lunkeeper {

// Records the heartbeats that it receives.
class RecordingSink final : public HeartbeatSink {
 public:
  FencesByArray OnHeartbeat(fencing::Heartbeat heartbeat) override {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = absl::Now();
    if (heartbeats_ > 0) longest_gap_ = std::max(longest_gap_, now - last_at_);
    last_at_ = now;
    ++heartbeats_;
    last_ = std::move(heartbeat);
    return fences_;
  }
  LimitsByVolume LimitsOf(const NodeId&) override { return Get(limits_); }
  std::set<std::string> RemovedArrays() override { return Get(removed_); }
  void OnClosed(const NodeId& node) override {
    absl::MutexLock lock(&mutex_);
    ++closed_;
    ++closed_by_node_[node.value()];
  }

  std::optional<bool> Hears(const NodeId& node) override {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&votes_));
    return keeps_count_ ? std::optional(hears_.contains(node.value())) : std::nullopt;
  }
  bool KernelAnswers(const NodeId& node) override {
    absl::MutexLock lock(&mutex_);
    return ended_.contains(node.value());
  }
  // Nodes whose streams ended, and whose kernels go on.
  void SetEnded(std::set<std::string> nodes) {
    absl::MutexLock lock(&mutex_);
    ended_ = std::move(nodes);
  }
  // False: a question is not answered until it is true again, though the connection lives.
  void SetVotes(bool votes) {
    absl::MutexLock lock(&mutex_);
    votes_ = votes;
  }
  // As a controller without failover.
  void KeepNoCount() {
    absl::MutexLock lock(&mutex_);
    keeps_count_ = false;
  }
  std::optional<fencing::ReplicaSight> Sight() override {
    absl::MutexLock lock(&mutex_);
    return sight_;
  }
  void SetSight(const fencing::ReplicaSight& sight) {
    absl::MutexLock lock(&mutex_);
    sight_ = sight;
  }
  std::string ReplicaName() override { return Get(name_); }
  void SetVote(const std::string& name, std::set<std::string> hears) {
    absl::MutexLock lock(&mutex_);
    name_ = name;
    hears_ = std::move(hears);
  }

  void SetFences(const FencesByArray& fences) {
    absl::MutexLock lock(&mutex_);
    fences_ = fences;
  }
  void SetLimits(const LimitsByVolume& limits) {
    absl::MutexLock lock(&mutex_);
    limits_ = limits;
  }
  void SetRemoved(const std::set<std::string>& removed) {
    absl::MutexLock lock(&mutex_);
    removed_ = removed;
  }
  int heartbeats() { return Get(heartbeats_); }
  int closed() { return Get(closed_); }  // streams of any node
  int closed(const NodeId& node) {
    absl::MutexLock lock(&mutex_);
    return closed_by_node_[node.value()];
  }
  fencing::Heartbeat last() { return Get(last_); }
  absl::Duration longest_gap() { return Get(longest_gap_); }

 private:
  template <class T>
  T Get(const T& member) {
    absl::MutexLock lock(&mutex_);
    return member;
  }

  absl::Mutex mutex_;
  std::optional<fencing::ReplicaSight> sight_ ABSL_GUARDED_BY(mutex_);
  FencesByArray fences_;
  LimitsByVolume limits_;
  std::set<std::string> removed_;
  int heartbeats_ = 0, closed_ = 0;
  std::map<std::string, int> closed_by_node_;
  fencing::Heartbeat last_;
  std::string name_;
  std::set<std::string> hears_, ended_;
  bool votes_ ABSL_GUARDED_BY(mutex_) = true;
  bool keeps_count_ = true;
  absl::Time last_at_;
  absl::Duration longest_gap_ = absl::ZeroDuration();
};

}  // namespace lunkeeper
