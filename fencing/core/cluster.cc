#include "fencing/core/cluster.h"

namespace lunkeeper::fencing {
namespace {

template <class Map, class Key>
auto* Find(Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

template <class Key>
std::vector<const Pod*> Resolve(const std::map<PodId, Pod>& pods, const std::map<Key, std::set<PodId>>& index,
                                const Key& key) {
  std::vector<const Pod*> result;
  if (const auto* ids = Find(index, key))
    for (const auto& id : *ids) result.push_back(&pods.at(id));
  return result;
}

template <class Key>
void Unindex(std::map<Key, std::set<PodId>>& index, const Key& key, const PodId& pod) {
  const auto found = index.find(key);
  if (found == index.end()) return;
  found->second.erase(pod);
  if (found->second.empty()) index.erase(found);
}

}  // namespace

void Cluster::Put(const Pod& pod) {
  Remove(pod.id);
  pods_[pod.id] = pod;
  if (!pod.node.empty()) on_node_[pod.node].insert(pod.id);
  for (const auto& [array, volumes] : pod.volumes)
    for (const auto& volume : volumes) of_volume_[volume].insert(pod.id);
}

void Cluster::Remove(const PodId& id) {
  const auto* pod = Find(pods_, id);
  if (!pod) return;
  Unindex(on_node_, pod->node, id);
  for (const auto& [array, volumes] : pod->volumes)
    for (const auto& volume : volumes) Unindex(of_volume_, volume, id);
  pods_.erase(id);
}

const Node* Cluster::FindNode(const NodeName& name) const { return Find(nodes_, name); }

const NodeFence* Cluster::FindFence(const NodeId& node) const { return Find(fences_, node); }

std::vector<const Pod*> Cluster::PodsOn(const NodeName& name) const { return Resolve(pods_, on_node_, name); }

std::vector<const Pod*> Cluster::PodsOf(const VolumeId& volume) const {
  return Resolve(pods_, of_volume_, volume);
}

bool Cluster::IsCurrent(const NodeId& node) const {
  const auto* object = FindNode(NameOf(node));
  return !object || object->instance.empty() || object->instance == node;
}

}  // namespace lunkeeper::fencing
