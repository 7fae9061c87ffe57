// Pods are looked up by node at each tick and by volume for each replacement, so both have an index; pods_
// owns the objects. std::set never moves them, so that the indexes can hold pointers. A pod that changes is
// removed and stored anew, as every key it is indexed by may have changed with it.

#include "fencing/core/cluster.h"

#include <algorithm>

namespace lunkeeper::fencing {
namespace {

template <class Map, class Key>
auto* FindIn(Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

bool ComesBefore(const Pod* a, const Pod* b) { return a->id < b->id; }

bool UsesVolume(const Pod& pod, const VolumeId& volume) {
  return std::any_of(pod.volumes.begin(), pod.volumes.end(),
                     [&](const auto& entry) { return entry.second.contains(volume); });
}

size_t HashOf(const VolumeId& volume) { return std::hash<VolumeId>()(volume); }

}  // namespace

void Cluster::StoreObject(const Node& node) {
  auto& kept = nodes_[node.name];
  kept = node;
  if (node.taint.empty() && !node.out_of_service) {
    tainted_.erase(node.name);
  } else {
    tainted_[node.name] = &kept;
  }
}

void Cluster::Remove(const NodeName& node) {
  tainted_.erase(node);
  nodes_.erase(node);
}

void Cluster::StoreObject(const Pod& pod) {
  Remove(pod.id);
  const auto& kept = *pods_.insert(pod).first;
  if (!kept.node.empty()) {
    auto& there = on_node_[kept.node];
    // In order of ids, so that two replicas, and two runs of a seed, act in the same order.
    there.insert(std::lower_bound(there.begin(), there.end(), &kept, ComesBefore), &kept);
  }
  for (const auto& [array, volumes] : kept.volumes)
    for (const auto& volume : volumes) of_volume_.emplace(HashOf(volume), &kept);
}

void Cluster::Remove(const PodId& id) {
  const auto pod = pods_.find(id);
  if (pod == pods_.end()) return;
  if (const auto there = on_node_.find(pod->node); there != on_node_.end()) {
    std::erase(there->second, &*pod);
    if (there->second.empty()) on_node_.erase(there);
  }
  for (const auto& [array, volumes] : pod->volumes)
    for (const auto& volume : volumes) {
      const auto [begin, end] = of_volume_.equal_range(HashOf(volume));
      of_volume_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == &*pod; }));
    }
  pods_.erase(pod);
}

const Node* Cluster::FindNode(const NodeName& name) const { return FindIn(nodes_, name); }

const NodeFence* Cluster::FindFence(const NodeId& node) const { return FindIn(fences_, node); }

const std::vector<const Pod*>& Cluster::PodsOn(const NodeName& name) const {
  static const std::vector<const Pod*> kNone;
  const auto* pods = FindIn(on_node_, name);
  return pods ? *pods : kNone;
}

// They are neighbours, as an id begins with its namespace.
std::vector<const Pod*> Cluster::PodsInNamespaceOf(const PodId& pod) const {
  std::vector<const Pod*> pods;
  const std::string prefix = NamespaceOf(pod) + "/";
  for (auto at = pods_.lower_bound(PodId(prefix)); at != pods_.end() && at->id.value().starts_with(prefix);
       ++at)
    pods.push_back(&*at);
  return pods;
}

std::vector<const Pod*> Cluster::PodsOf(const VolumeId& volume) const {
  std::vector<const Pod*> pods;
  // The hash alone is kept, which saves the memory of a hundred thousand ids; so each hit is checked.
  const auto [begin, end] = of_volume_.equal_range(HashOf(volume));
  for (auto at = begin; at != end; ++at)
    if (UsesVolume(*at->second, volume)) pods.push_back(at->second);
  std::sort(pods.begin(), pods.end(), ComesBefore);
  pods.erase(std::unique(pods.begin(), pods.end()), pods.end());  // should two of its volumes share a hash
  return pods;
}

void Cluster::StoreCharge(const VolumeId& volume, ChargedNodes nodes) {
  if (nodes.empty()) {
    charged_.erase(volume);
  } else {
    charged_[volume] = std::move(nodes);
  }
}

const ChargedNodes& Cluster::ChargedTo(const VolumeId& volume) const {
  static const ChargedNodes kNone;
  const auto* nodes = FindIn(charged_, volume);
  return nodes ? *nodes : kNone;
}

bool Cluster::IsCurrent(const NodeId& node) const {
  const auto* object = FindNode(NameOf(node));
  // A Node that was deleted speaks for nobody, and one whose driver has not registered yet does not say for
  // whom.
  return !object || object->node_id.empty() || object->node_id == node;
}

}  // namespace lunkeeper::fencing
