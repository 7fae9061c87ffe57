#include "fencing/runner/inventory.h"

#include <algorithm>
#include <utility>

#include "devices/array/arrays.h"

namespace lunkeeper::fencing {
namespace {

template <class Map, class Value>
void Store(Map& map, const std::string& key, const Value* value) {
  if (value == nullptr) {
    map.erase(key);
  } else {
    map[key] = *value;
  }
}

template <class Map>
auto* Find(Map& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

FailoverWish Joined(FailoverWish a, FailoverWish b) {
  if (a == FailoverWish::kNever || b == FailoverWish::kNever) return FailoverWish::kNever;
  return a == FailoverWish::kUnsaid ? b : a;
}

std::string NamespaceOf(const std::string& key) { return key.substr(0, key.find('/')); }

}  // namespace

void Inventory::OnNode(const std::string& name, const NodeFacts* facts) {
  const NodeFacts* before = Find(nodes_, name);
  const bool moved = before == nullptr || facts == nullptr || before->labels != facts->labels;
  Store(nodes_, name, facts);
  if (facts == nullptr) {
    say_(NodeGone{NodeName(name)});
  } else {
    SayNode(name);
  }
  if (moved) settled_ = false;
}

void Inventory::OnInstance(const std::string& node, const NodeId* instance) {
  Store(instances_, node, instance);
  if (nodes_.contains(node)) SayNode(node);
}

void Inventory::OnPod(const std::string& key, const PodFacts* facts) {
  if (const PodFacts* before = Find(pods_, key); before != nullptr) {
    for (const std::string& claim : before->claims) {
      const auto found = claims_.find(claim);
      if (found == claims_.end()) continue;
      found->second.pods.erase(key);
      if (found->second.pods.empty() && found->second.volume.empty()) claims_.erase(found);
    }
  }
  Store(pods_, key, facts);
  if (facts == nullptr) return say_(PodGone{PodId(key)});
  for (const std::string& claim : facts->claims) claims_[claim].pods.insert(key);
  SayPod(key);
}

void Inventory::OnVolume(const std::string& name, const VolumeFacts* facts) {
  if (const VolumeFacts* before = Find(volumes_, name); before != nullptr) {
    const std::string claim = before->claim;
    if (Claim* known = Find(claims_, claim); known != nullptr && known->volume == name) known->volume.clear();
    volume_names_.erase(before->volume.value());
    volumes_.erase(name);
    SayPodsOf(claim);
  }
  if (facts == nullptr) return;
  const auto& [key, kept] = *volumes_.emplace(name, *facts).first;
  if (!kept.volume.empty()) volume_names_[kept.volume.value()] = &key;
  claims_[facts->claim].volume = name;
  SayPodsOf(facts->claim);
}

void Inventory::OnNamespace(const std::string& name, const FailoverWish* wish) {
  Store(namespaces_, name, wish);
  for (auto pod = pods_.lower_bound(name + "/"); pod != pods_.end() && NamespaceOf(pod->first) == name; ++pod)
    SayPod(pod->first);
}

void Inventory::OnStorageClass(const std::string& name, const FailoverWish* wish) {
  Store(classes_, name, wish);
  for (const auto& [volume, facts] : volumes_)
    if (facts.storage_class == name) SayPodsOf(facts.claim);
}

const NodeFacts* Inventory::FindNode(const NodeName& name) const { return Find(nodes_, name.value()); }
const PodFacts* Inventory::FindPod(const PodId& pod) const { return Find(pods_, pod.value()); }

const VolumeFacts* Inventory::FindVolume(const std::string& name) const { return Find(volumes_, name); }
const std::string* Inventory::FindVolumeOf(const VolumeId& volume) const {
  const std::string* const* found = Find(volume_names_, volume.value());
  return found == nullptr ? nullptr : *found;
}

void Inventory::SayNode(const std::string& name) {
  const NodeFacts& facts = nodes_.at(name);
  Node node;
  node.name = NodeName(name);
  node.uid = facts.uid;
  node.version = facts.version;
  if (const NodeId* instance = Find(instances_, name); instance != nullptr) node.instance = *instance;
  node.ready = facts.ready;
  node.schedulable = facts.schedulable;
  node.exempt = facts.exempt;
  node.out_of_service = facts.out_of_service;
  // The value is the instance; the rest of the NodeFence's name is the machine's.
  if (const std::string value = TaintIn(facts.taints); !value.empty()) node.taint = name + "." + value;
  say_(NodeSeen{std::move(node)});
}

void Inventory::Settle() {
  if (std::exchange(settled_, true)) return;
  fitting_.clear();
  for (const auto& [key, pod] : pods_)
    if (!pod.node_selector.empty()) SayPod(key);
}

void Inventory::SayPodsOf(const std::string& claim) {
  const Claim* known = Find(claims_, claim);
  if (known == nullptr) return;
  for (const std::string& key : known->pods) SayPod(key);
}

void Inventory::SayPod(const std::string& key) {
  const PodFacts& facts = pods_.at(key);
  Pod pod;
  pod.id = PodId(key);
  pod.uid = facts.uid;
  pod.node = facts.node;
  pod.owner_kind = facts.owner_kind;
  pod.wish = facts.wish;
  if (const FailoverWish* wish = Find(namespaces_, NamespaceOf(key)); wish != nullptr)
    pod.wish = Joined(pod.wish, *wish);
  pod.foreign_volumes = facts.foreign_volumes;
  for (const std::string& claim : facts.claims) AddClaim(pod, claim);
  if (!facts.node_selector.empty()) pod.fits = NodesWith(facts.node_selector);
  pod.deleting = facts.deleting;
  pod.running = facts.running;
  pod.crash_looping = facts.crash_looping;
  say_(PodSeen{std::move(pod)});
}

void Inventory::AddClaim(Pod& pod, const std::string& claim) const {
  const Claim* known = Find(claims_, claim);
  const VolumeFacts* volume = known == nullptr ? nullptr : Find(volumes_, known->volume);
  const std::string array = volume == nullptr ? "" : ArrayNameIn(volume->volume.value());
  if (array.empty()) {
    pod.foreign_volumes = true;
    return;
  }
  pod.volumes[ArrayId(array)].insert(volume->volume);
  if (const FailoverWish* wish = Find(classes_, volume->storage_class); wish != nullptr)
    pod.wish = Joined(pod.wish, *wish);
}

// With none a name that no node has: an empty set would mean any.
const std::set<NodeName>& Inventory::NodesWith(const std::vector<Label>& selector) {
  static const std::set<NodeName> kNowhere = {NodeName()};
  if (!settled_) return kNowhere;
  const auto [at, is_new] = fitting_.try_emplace(selector);
  std::set<NodeName>& fitting = at->second;
  if (!is_new) return fitting;
  for (const auto& [name, facts] : nodes_)
    if (std::includes(facts.labels.begin(), facts.labels.end(), selector.begin(), selector.end()))
      fitting.insert(NodeName(name));
  if (fitting.size() == nodes_.size())
    fitting.clear();
  else if (fitting.empty())
    fitting = kNowhere;
  return fitting;
}

}  // namespace lunkeeper::fencing
