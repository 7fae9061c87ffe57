#pragma once
// The orchestrator's objects as last seen, indexed the way the core asks for them. A cache: what is acted on
// is checked again by the orchestrator itself, by version or UID. One thread owns it; nothing fails.

#include <map>
#include <set>

#include "fencing/core/types.h"

namespace lunkeeper::fencing {

class Cluster {
 public:
  void Put(const Node& node) { nodes_[node.name] = node; }
  void Put(const NodeFence& fence) { fences_[fence.node] = fence; }
  void Put(const Pod& pod);
  void Remove(const NodeName& node) { nodes_.erase(node); }
  void Remove(const NodeId& fence) { fences_.erase(fence); }
  void Remove(const PodId& pod);

  const std::map<NodeName, Node>& nodes() const { return nodes_; }
  const std::map<NodeId, NodeFence>& fences() const { return fences_; }
  const Node* FindNode(const NodeName& name) const;
  const NodeFence* FindFence(const NodeId& node) const;
  std::vector<const Pod*> PodsOn(const NodeName& name) const;
  // Pods anywhere which use `volume`.
  std::vector<const Pod*> PodsOf(const VolumeId& volume) const;
  // The Node object speaks for this instance, or there is none that speaks for another.
  bool IsCurrent(const NodeId& node) const;

 private:
  std::map<NodeName, Node> nodes_;
  std::map<NodeId, NodeFence> fences_;
  std::map<PodId, Pod> pods_;
  std::map<NodeName, std::set<PodId>> on_node_;
  std::map<VolumeId, std::set<PodId>> of_volume_;
};

}  // namespace lunkeeper::fencing
