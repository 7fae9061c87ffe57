#pragma once
// Knows the truth of the simulated world and holds everyone to it. Each check throws Violation with a
// sentence that says what must never happen and did.

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "fencing/sim/api.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/leader_checker.h"
#include "fencing/sim/poison_checker.h"

namespace lunkeeper::fencing::sim {

// What is wrong with a node, for judging whether it may be failed over.
enum class Cause { kDead, kStorage, kApi, kKubelet, kPlugin, kControllers };

class Checker {
 public:
  explicit Checker(World& world);

  // Writes.
  Write NextWrite(const VolumeId& volume, const NodeId& node);
  void Landing(const ArrayId& array, const NodeId& node, const VolumeId& volume, Generation generation,
               const Write& write, uint64_t current);
  void Acknowledged(const VolumeId& volume, const Write& write);
  void Granting(const ArrayId& array, const NodeId& node, const VolumeId& volume, bool drained);
  // No pod there uses it.
  void AsksAsStranger(const NodeId& node, const VolumeId& volume) { strangers_.emplace(node, volume); }
  void LoggedIn(const VolumeId& volume, Generation generation);
  void Reads(const Pod& pod);
  void Restored(ArrayModel& array);
  // Several nodes write to it, each to a block of its own.
  void MakeShared(const VolumeId& volume) { shared_.insert(volume); }
  bool IsShared(const VolumeId& volume) const { return shared_.contains(volume); }
  // Its node asks for that.
  void Released(const ArrayId& array, Generation generation) { released_.emplace(array, generation); }
  // The I/O of a device is ended, as its grant is gone or a fence is said to be in force.
  void Revoked(const ArrayId& array, const NodeId& node, const VolumeId& volume, Generation generation);

  // It shares a volume with one on the same node that is to be left alone, and so it is left, too.
  bool IsTied(const Workload& workload) const;

  // Fences, taints, deletions, decisions.
  void FenceBegins(const ArrayId& array, const ArrayFence& fence);
  void FenceReported(const ArrayId& array, const ArrayFence& fence);
  // From now on each machine that mounts it dies of it soon; with none, no more.
  void Poison(const std::set<VolumeId>& volumes) { poison_.Poison(volumes); }
  bool IsPoisoned(const VolumeId& volume) const { return poison_.IsPoisoned(volume); }
  void DiedOf(const VolumeId& volume, const NodeId& node);
  void Unfenced(const ArrayId& array, const ArrayFence& fence, Generation asked);
  void Started(const ArrayModel& array);
  void Obeys(const ArrayId& array, Term term);  // a call made with it
  void Untainting(const Node& node);
  void TaintsForPlugin(const Node& node);
  void Deleting(const Pod& pod, Grace grace);
  // A replica's writes and fences as they leave it; what it decides, by the record that it makes.
  void Acts(const Replica& replica, const std::string& what);
  void Decides(const Replica& replica, const NodeFence& fence);
  void Orders(const Uid& pod);  // to be deleted by force
  void Fences(const ArrayId& array, Term term, const NodeId& node, const VolumeSet& volumes);
  // It gives the lease up, as another one is better placed.
  void Yields(const Replica& replica) { leader_.Yields(replica); }
  void Hears(const Replica& replica, const NodeId& node) { leader_.Hears(replica, node); }

  // What faults do. Several may make a node ill in one way; it is until the last of them is mended.
  void Sick(const NodeId& node, Cause cause, bool on);
  bool IsSick(const NodeId& node, Cause cause) const;
  void HistoryRewritten() { rewritten_ = true; }

  // What keeps the healed world from being well; empty: it is.
  std::string Unsettled() const;
  size_t died_of_poison() const { return poison_.deaths(); }
  int failovers() const { return failovers_; }

 private:
  struct Illness {
    int faults = 0;
    WorldTime since;
    std::optional<WorldTime> until;  // empty: it never ended
  };
  struct Reported {
    Generation generation = 0;
    VolumeSet volumes;
  };

  [[noreturn]] void Fail(const std::string& what) const;
  bool MayBeFailedOver(const NodeId& node) const;
  // A pod that uses it may have come meanwhile.
  bool IsStranger(const NodeId& node, const VolumeId& volume) const {
    const auto pods = world_.api->PodsOn(NameOf(node));
    return strangers_.contains({node, volume}) && std::ranges::none_of(pods, [&](const Pod& pod) {
             const auto has = [&](const auto& entry) { return entry.second.contains(volume); };
             return std::ranges::any_of(pod.volumes, has);
           });
  }
  void RefuseIfItWrites(const Replica& replica, const NodeFence& fence) const;
  // Another one of its name is meant, or none is there.
  bool IsReplaced(const NodeId& node) const;
  bool IsLostToKubernetes(const NodeId& node) const;
  bool WasSick(const NodeId& node, Cause cause, Span within) const;
  std::string UnsettledWorkload(const Workload& workload) const;

  World& world_;
  std::map<VolumeId, uint64_t> written_;
  std::map<VolumeId, std::array<uint64_t, kBlocks>> acknowledged_;
  std::map<VolumeId, Generation> latest_;
  std::map<ArrayId, Term> terms_;
  std::map<std::pair<ArrayId, NodeId>, Reported> reported_;
  std::map<std::pair<ArrayId, NodeId>, std::map<VolumeId, Generation>> fenced_;  // last
  std::set<std::pair<ArrayId, Generation>> released_;                            // by their nodes
  std::set<std::pair<NodeId, VolumeId>> strangers_;
  std::set<VolumeId> shared_;
  std::map<NodeId, size_t> own_blocks_;
  std::map<std::pair<NodeId, Cause>, Illness> illnesses_;
  std::map<std::string, std::map<NodeName, WorldTime>> decisions_;  // by replica; machines
  std::map<VolumeId, uint64_t> lost_;  // sequences up to here went with a restore
  std::set<std::pair<ArrayId, NodeId>> in_force_;
  std::map<Uid, WorldTime> ordered_;  // when a pod's deletion by force was last decided
  LeaderChecker leader_;
  PoisonChecker poison_;
  bool rewritten_ = false;
  int failovers_ = 0;
};

}  // namespace lunkeeper::fencing::sim
