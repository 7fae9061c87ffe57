#pragma once
// Holds failover to it that a volume of which nodes die goes no further than to the second one. Throws
// Violation. One thread.

#include <map>
#include <set>
#include <string>

#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

class PoisonChecker {
 public:
  explicit PoisonChecker(World& world) : world_(world) {}
  // From now on each machine that mounts it dies of it soon; with none, no more.
  void Poison(const std::set<VolumeId>& volumes) { poisoned_ = volumes; }
  bool IsPoisoned(const VolumeId& volume) const { return poisoned_.contains(volume); }
  void DiedOf(const VolumeId& volume, const NodeId& node);
  // The replica has decided to take the volumes from their node.
  void Decides(const Replica& replica, const NodeFence& fence);
  size_t deaths() const { return deaths_.size(); }

 private:
  struct Death {
    WorldTime at;
    std::set<std::string> observers = {};  // the replicas that could see it
    bool known = true;                     // to who last took the volume from a node
  };
  bool IsKnown(const VolumeId& volume, const NodeId& node, const Death& death, const Replica& leader) const;

  World& world_;
  std::set<VolumeId> poisoned_;
  std::map<NodeId, Death> deaths_;
};

}  // namespace lunkeeper::fencing::sim
