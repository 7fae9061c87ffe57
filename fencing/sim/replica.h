#pragma once
// A controller replica: the runner around a core. It ticks, polls, watches, and carries out
// what the core asks for. Its process may crash at any action, stall, and its clock is its own.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fencing/core/core.h"
#include "fencing/sim/action_runner.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/fault_injection.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

class Replica {
 public:
  Replica(World& world, size_t number, Settings settings);

  Endpoint endpoint() const { return endpoint_; }
  bool running() const { return running_; }
  bool Leads() const { return running_ && core_->Leads(); }
  std::string name() const { return "replica" + std::to_string(number_) + "." + std::to_string(life_); }
  Core& core() { return *core_; }

  void Receive(decltype(Event::what) what);
  // For nodes: forwarded to the array.
  void Acquire(const ArrayId& array, const VolumeId& volume, const NodeId& node,
               std::function<void(Generation)> reply);
  void Release(const ArrayId& array, const VolumeId& volume, const NodeId& node, Generation generation,
               std::function<void(bool)> reply);

  // The API server brings it what changes.
  bool Watches() const;
  // To another replica: whether the node's heartbeats reach this one, and what it sees.
  struct Vote {
    bool hears = false;
    std::optional<ReplicaSight> sight;
  };
  void Answer(const NodeId& node, const std::function<void(Vote)>& reply) const;
  // Another one has just said that they do reach it.
  void NoteYes(const NodeId& node) { yes_at_[node] = world_.now(); }
  std::optional<WorldTime> YesAt(const NodeId& node) const;

  // Faults.
  void AlwaysSayYes(bool on) { always_yes_ = on; }
  void Crash(Span down);
  void Stall(Span length);
  // Before or right after the action number `count` from now on that is not routine.
  void FailAtAction(int count, bool stall) { fail_at_ = count, fail_by_stall_ = stall; }
  void set_drift(int per_mille, Span offset) {
    drift_ = per_mille;
    offset_ = offset;
  }

  // For the checker: since when this life of it runs; when its last successful renewal was sent, in the
  // world's time.
  WorldTime began_at() const { return began_at_; }
  // It may be wrong about who is silent for some seconds from here.
  WorldTime stalled_until() const { return long_stall_until_; }
  WorldTime renewed_at() const { return renewed_at_; }
  void NoteRenewal(WorldTime sent) { renewed_at_ = sent; }
  uint64_t life() const { return life_; }
  bool stalled() const { return world_.now() < stalled_until_; }

 private:
  Instant Clock() const {
    const auto passed = world_.now().since_start();
    return Instant(offset_ + passed + drift_ * passed / 1000);
  }
  void Start();
  void Every(Span period, void (Replica::*what)());
  void Again(Span period, void (Replica::*what)());
  void Tick();
  void PollArrays();
  void OnLook(ArrayModel& array, uint64_t number, Instant asked, const std::optional<ArrayView>& view);
  void PollApi();
  void PollLease();
  void List();
  void Watched(uint64_t life, const decltype(Event::what)& what);
  void NoteSeen(const decltype(Event::what)& what);
  void Do(const Action& action);
  void Perform(const Action& action);
  void Wanted(const ArrayId& array, const VolumeId& volume, const NodeId& node, WorldTime until);

  World& world_;
  const size_t number_;
  const Settings settings_;
  const Endpoint endpoint_;
  ActionRunner runner_;
  std::unique_ptr<FaultInjection> fault_injection_;
  std::unique_ptr<Core> core_;
  bool running_ = true;
  uint64_t life_ = 0;
  int fail_at_ = 0;
  bool fail_by_stall_ = false;
  int drift_ = 0;
  Span offset_;
  std::map<NodeId, WorldTime> heard_at_, yes_at_;
  // At an array, one at a time; as in failover/array_hub.h.
  struct Looks {
    uint64_t number = 0;
    bool under_way = false, failed = false;
  };
  std::map<ArrayId, Looks> looks_;
  bool always_yes_ = false;
  // In the world's time; what has not happened yet counts as of the world's start.
  WorldTime began_at_, stalled_until_, long_stall_until_, alive_at_, listed_at_, renewed_at_;
  std::vector<decltype(Event::what)> backlog_;
  // What a new list has to confirm, or it is gone.
  bool listing_ = false;
  std::set<NodeName> nodes_, listed_nodes_;
  std::set<PodId> pods_, listed_pods_;
  std::set<NodeId> fences_, listed_fences_;
};

}  // namespace lunkeeper::fencing::sim
