#pragma once
// A controller replica: a pod with a process that runs the product's own failover (fencing/failover), with
// clients of the simulated API server and arrays. It may crash at any write, or stall, and its clock is its
// own. It ends and hangs with its machine, whose kubelet starts it again. What nodes ask for, the product's
// coordinator decides (fencing/coordinator).

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fencing/coordinator/node_requests.h"
#include "fencing/failover/failover.h"
#include "fencing/failover/replica_poll.h"
#include "fencing/sim/process.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

class Replica {
 public:
  Replica(World& world, size_t number, ClockError clock, Machine& machine);
  ~Replica();

  Endpoint endpoint() const { return endpoint_; }
  Machine& machine() const { return machine_; }
  bool running() const { return running_; }
  // By the lease: what it knows of it may be older.
  bool Leads() const;
  // It knows what changes, and could lead.
  bool Watches() const;
  // This life of it, a heartbeat of that node.
  bool HasHeard(const NodeId& node) const;
  std::string name() const {
    return "replica" + std::to_string(number_) + "." + std::to_string(lives_.size());
  }

  // From nodes, once they have learnt of it. `reply` gets the fences that are in force against the node, and
  // the addresses of the replicas that are known here.
  using HeartbeatReply = std::function<void(const FencesByArray&, const std::vector<std::string>&)>;
  void OnHeartbeat(Heartbeat heartbeat, HeartbeatReply reply);
  void OnClosed(const NodeId& node);
  // A call of a node, which may block. `reply`: whether the status is its own, or its kernel's for it.
  void Serve(std::function<absl::Status(NodeRequests&)> work,
             std::function<void(const absl::Status&, bool)> reply);
  // A message reaches its process, or at least a kernel that refuses it. Not where the power is off.
  bool HasKernel() const;
  std::string address() const;  // where it serves nodes

  // From the replica at that endpoint: whether the node's heartbeats reach this one, and what it sees.
  void Answer(Endpoint asker, const NodeId& node, std::function<void(ReplicaAnswer)> reply);
  // When another one last said that they do reach it: in time, or where that had to be waited for.
  std::optional<WorldTime> YesAt(const NodeId& node) const;

  // Faults.
  void AlwaysSayYes(bool on) { always_yes_ = on; }
  void Crash(Span down);
  void Stall(Span length);
  // Of its machine.
  void LosePower();
  void Hold(bool on);
  // Kubernetes has deleted its pod: it never starts again. What runs of it goes on until its kubelet ends it.
  void Delete() { deleted_ = true; }
  bool deleted() const { return deleted_; }
  void EndInOrder();
  // Another one takes its place after `down`, as in a roll-out: it ends in order, and gives up the lease.
  void Replace(Span down);
  void StepClock(Span by);  // its machine's time of day
  void ApplySettings();     // the world's, as they are now
  // Before or right after the write number `count` from now on by which it acts.
  void FailAtAction(int count, bool stall) { fail_at_ = count, fail_by_stall_ = stall; }
  // From its own threads, for each such write. False: it has crashed instead.
  bool BeginsToAct();
  // For good: the world is over.
  void End();
  bool ended() const;

  // For the checker: since when this life of it runs; when its last successful renewal was sent, in the
  // world's time.
  WorldTime began_at() const { return began_at_; }
  // Heartbeats reach it from then on.
  WorldTime hears_from() const { return hears_from_; }
  // It may be wrong about who is silent for some seconds from here.
  WorldTime stalled_until() const { return long_stall_until_; }
  WorldTime renewed_at() const { return renewed_at_; }
  void NoteRenewal(WorldTime sent) { renewed_at_ = sent; }
  void NoteRelease() { renewed_at_ = {}; }
  bool stalled() const;

 private:
  struct Life;
  void Start();
  void StartIn(Span delay);
  Settings OwnSettings() const;
  Life& life() const { return *lives_.back(); }
  std::vector<AskedReplica> ListAsked(Life& life);
  std::optional<ReplicaAnswer> Ask(Life& life, Replica& other, const NodeId& node, Span timeout,
                                   bool awaited);

  World& world_;
  const size_t number_;
  ClockError clock_;
  Machine& machine_;
  const Endpoint endpoint_;
  std::vector<std::unique_ptr<Life>> lives_;  // the last one runs, or ran
  bool running_ = false, over_ = false, always_yes_ = false, deleted_ = false;
  uint64_t starts_ = 0;
  std::optional<WorldTime> held_since_;
  int fail_at_ = 0;
  bool fail_by_stall_ = false;
  std::map<NodeId, WorldTime> yes_at_;
  // What has not happened yet counts as of the world's start.
  WorldTime began_at_, hears_from_, long_stall_until_, renewed_at_;
};

}  // namespace lunkeeper::fencing::sim
