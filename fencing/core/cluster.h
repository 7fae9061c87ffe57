#pragma once
// The orchestrator's objects as last seen, indexed the way the core asks for them. A cache: what is acted on
// is checked again by the orchestrator itself, by version or UID. One thread owns it; nothing fails.

#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "fencing/core/indexed_map.h"
#include "fencing/core/types.h"

namespace lunkeeper::fencing {

class Cluster {
 public:
  void StoreObject(const Node& node);
  void StoreObject(const NodeFence& fence) { fences_[fence.node] = fence; }
  void StoreObject(const Pod& pod);
  void Remove(const NodeName& node);
  void Remove(const NodeId& fence) { fences_.erase(fence); }
  void Remove(const PodId& pod);
  // None: the volume is free of them.
  void StoreCharge(const VolumeId& volume, ChargedNodes nodes);

  const IndexedMap<NodeName, Node>& nodes() const { return nodes_; }
  // Those with a taint of ours, or with an administrator's.
  const std::map<NodeName, const Node*>& tainted() const { return tainted_; }
  const std::map<NodeId, NodeFence>& fences() const { return fences_; }
  const Node* FindNode(const NodeName& name) const;
  const NodeFence* FindFence(const NodeId& node) const;
  // In order of their ids; good until the next pod is put or removed.
  const std::vector<const Pod*>& PodsOn(const NodeName& name) const;
  // Those in the namespace of `pod`, with itself; in order of their ids, as long as they are.
  std::vector<const Pod*> PodsInNamespaceOf(const PodId& pod) const;
  // Pods anywhere which use `volume`.
  std::vector<const Pod*> PodsOf(const VolumeId& volume) const;
  const ChargedNodes& ChargedTo(const VolumeId& volume) const;
  const std::map<VolumeId, ChargedNodes>& charged() const { return charged_; }
  // mount_deaths.h says why.
  bool IsHeldBack(const VolumeId& volume) const { return ChargedTo(volume).size() >= kMostMountDeaths; }
  // The Node object speaks for this instance, or there is none that speaks for another.
  bool IsCurrent(const NodeId& node) const;

 private:
  static constexpr size_t kMostMountDeaths = 2;
  struct ById {
    using is_transparent = void;
    static const PodId& IdOf(const PodId& id) { return id; }
    static const PodId& IdOf(const Pod& pod) { return pod.id; }
    bool operator()(const auto& a, const auto& b) const { return IdOf(a) < IdOf(b); }
  };

  IndexedMap<NodeName, Node> nodes_;
  std::map<NodeName, const Node*> tainted_;
  std::map<NodeId, NodeFence> fences_;
  std::map<VolumeId, ChargedNodes> charged_;
  std::set<Pod, ById> pods_;
  std::map<NodeName, std::vector<const Pod*>> on_node_;
  std::unordered_multimap<size_t, const Pod*> of_volume_;  // by the volume's hash
};

}  // namespace lunkeeper::fencing
