#include "fencing/core/cluster.h"

#include <algorithm>

namespace lunkeeper::fencing {
namespace {

template <class Map, class Key>
auto* Find(Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

template <class Key>
using Index = std::map<Key, std::vector<const Pod*>>;

template <class Key>
const std::vector<const Pod*>& Resolve(const Index<Key>& index, const Key& key) {
  static const std::vector<const Pod*> kNone;
  const auto* pods = Find(index, key);
  return pods ? *pods : kNone;
}

template <class Key>
void AddTo(Index<Key>& index, const Key& key, const Pod& pod) {
  auto& pods = index[key];
  const auto at = std::find_if(pods.begin(), pods.end(), [&](const Pod* each) { return pod.id < each->id; });
  pods.insert(at, &pod);
}

template <class Key>
void TakeFrom(Index<Key>& index, const Key& key, const Pod& pod) {
  const auto found = index.find(key);
  if (found == index.end()) return;
  std::erase(found->second, &pod);
  if (found->second.empty()) index.erase(found);
}

}  // namespace

void Cluster::Put(const Pod& pod) {
  Remove(pod.id);
  const auto& kept = *pods_.insert(pod).first;
  if (!kept.node.empty()) AddTo(on_node_, kept.node, kept);
  for (const auto& [array, volumes] : kept.volumes)
    for (const auto& volume : volumes) AddTo(of_volume_, volume, kept);
}

void Cluster::Remove(const PodId& id) {
  const auto pod = pods_.find(id);
  if (pod == pods_.end()) return;
  TakeFrom(on_node_, pod->node, *pod);
  for (const auto& [array, volumes] : pod->volumes)
    for (const auto& volume : volumes) TakeFrom(of_volume_, volume, *pod);
  pods_.erase(pod);
}

const Node* Cluster::FindNode(const NodeName& name) const { return Find(nodes_, name); }

const NodeFence* Cluster::FindFence(const NodeId& node) const { return Find(fences_, node); }

const std::vector<const Pod*>& Cluster::PodsOn(const NodeName& name) const { return Resolve(on_node_, name); }

const std::vector<const Pod*>& Cluster::PodsOf(const VolumeId& volume) const {
  return Resolve(of_volume_, volume);
}

bool Cluster::IsCurrent(const NodeId& node) const {
  const auto* object = FindNode(NameOf(node));
  return !object || object->instance.empty() || object->instance == node;
}

}  // namespace lunkeeper::fencing
