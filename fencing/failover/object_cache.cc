#include "fencing/failover/object_cache.h"

#include <algorithm>
#include <utility>

#include "devices/array/arrays.h"

// What depends on what, and so is reported again when it changes:
//
//   Node, CSINode ---------------------------> core's Node
//   Pod, PersistentVolume (by claim), ------> core's Pod
//   Namespace, StorageClass
//
// `claimants_` and `bound_` are the join: the pods and the volume of each claim. Facts are shared with the
// informers and not copied.
namespace lunkeeper::fencing {
namespace {

// Null erases, as in the methods that use it.
template <class Map, class Value>
void StoreOrErase(Map& map, const std::string& key, const Value* value) {
  if (value == nullptr) {
    map.erase(key);
  } else {
    map[key] = *value;
  }
}

template <class Map>
auto* FindIn(Map& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

template <class T>
const T* FindIn(const std::map<std::string, std::shared_ptr<const T>>& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : found->second.get();
}

// The entry of `key` that has this value, if there is one.
template <class Map, class Value>
void EraseEntry(Map& map, std::string_view key, Value value) {
  const auto [first, last] = map.equal_range(key);
  const auto own = std::find_if(first, last, [&](const auto& each) { return each.second == value; });
  if (own != last) map.erase(own);
}

// Of a pod, its namespace and its volumes' classes: one "never" is enough to keep the pod where it is.
FailoverPolicy JoinPolicies(FailoverPolicy a, FailoverPolicy b) {
  if (a == FailoverPolicy::kNever || b == FailoverPolicy::kNever) return FailoverPolicy::kNever;
  return a == FailoverPolicy::kUnsaid ? b : a;
}

std::string NamespaceOf(const std::string& key) { return key.substr(0, key.find('/')); }

}  // namespace

void ObjectCache::OnNode(const std::string& name, std::shared_ptr<const NodeFacts> facts) {
  KnownNode& known = nodes_[name];
  known.facts = std::move(facts);
  if (known.facts != nullptr) return ReportNode(name, known);
  if (known.id == nullptr) nodes_.erase(name);
  report_(NodeGone{NodeName(name)});
}

// A CSINode may arrive before its Node, which is reported with the node id once it comes.
void ObjectCache::OnNodeId(const std::string& name, std::shared_ptr<const NodeId> id) {
  KnownNode& known = nodes_[name];
  known.id = std::move(id);
  if (known.facts != nullptr) return ReportNode(name, known);
  if (known.id == nullptr) nodes_.erase(name);
}

// The pod is dropped and added anew, because its claims may differ. A pod's volumes cannot change, but a new
// pod may have taken the name of an old one between two lists.
void ObjectCache::OnPod(const std::string& key, std::shared_ptr<const PodFacts> facts) {
  ForgetPod(key);
  if (facts == nullptr) return report_(PodGone{PodId(key)});
  const auto& kept = *pods_.emplace(key, std::move(facts)).first;
  for (const std::string& claim : kept.second->claims) claimants_.emplace(claim, &kept.first);
  ReportPod(key);
}

void ObjectCache::ForgetPod(const std::string& key) {
  const auto known = pods_.find(key);
  if (known == pods_.end()) return;
  for (const std::string& claim : known->second->claims) EraseEntry(claimants_, claim, &known->first);
  pods_.erase(known);
}

void ObjectCache::OnVolume(const std::string& name, std::shared_ptr<const VolumeFacts> facts) {
  const auto before = volumes_.contains(name) ? volumes_.at(name) : nullptr;
  ReportCharge(before.get(), facts.get());
  ForgetVolume(name);
  if (facts == nullptr) return;
  const std::string& claim = facts->claim;
  const auto& [key, kept] = *volumes_.emplace(name, facts).first;
  if (!kept->volume.empty()) volume_names_.emplace(kept->volume.value(), &key);
  bound_.erase(claim);  // of the facts before
  bound_.insert(facts.get());
  ReportPodsOf(claim);
}

// Most volumes have none, and are not spoken of. The same facts once more mean that a write of ours came
// between, and that a restore may have undone it.
void ObjectCache::ReportCharge(const VolumeFacts* before, const VolumeFacts* now) const {
  const VolumeFacts none;
  const bool again = before == now;
  if (before == nullptr) before = &none;
  if (now == nullptr) now = &none;
  if (before->charged == now->charged && (!again || now->charged.empty())) return;
  report_(VolumeCharged{now->volume.empty() ? before->volume : now->volume, now->charged});
}

void ObjectCache::ForgetVolume(const std::string& name) {
  const auto known = volumes_.find(name);
  if (known == volumes_.end()) return;
  const auto facts = known->second;  // a copy: the entry goes, and its claim is needed below
  EraseEntry(volume_names_, facts->volume.value(), &known->first);
  volumes_.erase(known);
  // The claim may have been bound to another volume meanwhile.
  if (FindVolumeOfClaim(facts->claim) == facts.get()) bound_.erase(facts->claim);
  ReportPodsOf(facts->claim);
}

// The pods of a namespace are neighbours in the map, as their keys begin with "namespace/".
void ObjectCache::OnNamespace(const std::string& name, const FailoverPolicy* policy) {
  StoreOrErase(namespaces_, name, policy);
  for (auto pod = pods_.lower_bound(name + "/"); pod != pods_.end() && NamespaceOf(pod->first) == name; ++pod)
    ReportPod(pod->first);
}

void ObjectCache::OnStorageClass(const std::string& name, const FailoverPolicy* policy) {
  StoreOrErase(classes_, name, policy);
  for (const auto& [volume, facts] : volumes_)
    if (facts->storage_class == name) ReportPodsOf(facts->claim);
}

const NodeFacts* ObjectCache::FindNode(const NodeName& name) const {
  const KnownNode* known = FindIn(nodes_, name.value());
  return known == nullptr ? nullptr : known->facts.get();
}
const PodFacts* ObjectCache::FindPod(const PodId& pod) const { return FindIn(pods_, pod.value()); }

const VolumeFacts* ObjectCache::FindVolume(const std::string& name) const { return FindIn(volumes_, name); }
const std::string* ObjectCache::FindVolumeOf(const VolumeId& volume) const {
  const std::string* const* found = FindIn(volume_names_, volume.value());
  return found == nullptr ? nullptr : *found;
}

std::vector<std::string> ObjectCache::ListVolumesOf(const VolumeId& volume) const {
  std::vector<std::string> names;
  const auto [first, last] = volume_names_.equal_range(volume.value());
  for (auto each = first; each != last; ++each) names.push_back(*each->second);
  return names;
}

bool ObjectCache::IsUsedOn(const NodeName& node, const VolumeId& volume) const {
  const auto [first, last] = volume_names_.equal_range(volume.value());
  return std::any_of(first, last, [&](const auto& named) {
    const auto& facts = volumes_.at(*named.second);
    // Of two that say they have the same claim, it is bound to the later one.
    if (FindVolumeOfClaim(facts->claim) != facts.get()) return false;
    const auto [pod, end] = claimants_.equal_range(facts->claim);
    return std::any_of(pod, end, [&](const auto& each) { return pods_.at(*each.second)->node == node; });
  });
}

void ObjectCache::ReportNode(const std::string& name, const KnownNode& known) const {
  const NodeFacts& facts = *known.facts;
  Node node;
  node.name = NodeName(name);
  node.uid = facts.uid;
  node.version = facts.version;
  if (known.id != nullptr) node.node_id = *known.id;
  node.ready = facts.ready;
  node.exempt = facts.exempt;
  node.out_of_service = facts.out_of_service;
  node.labels = facts.labels;
  // The value is the instance; the rest of the NodeFence's name is the machine's.
  if (const std::string value = TaintIn(facts.taints); !value.empty()) node.taint = name + "." + value;
  node.plugin_taint = PluginTaintIn(facts.taints);
  report_(NodeSeen{std::move(node)});
}

void ObjectCache::ReportPodsOf(const std::string& claim) {
  const auto [pod, end] = claimants_.equal_range(claim);
  for (auto each = pod; each != end; ++each) ReportPod(*each->second);
}

const VolumeFacts* ObjectCache::FindVolumeOfClaim(const std::string& claim) const {
  const auto found = bound_.find(claim);
  return found == bound_.end() ? nullptr : *found;
}

void ObjectCache::ReportPod(const std::string& key) {
  const PodFacts& facts = *pods_.at(key);
  Pod pod;
  pod.id = PodId(key);
  pod.uid = facts.uid;
  pod.node = facts.node;
  pod.owner_kind = facts.owner_kind;
  pod.owner = facts.owner;
  pod.policy = facts.policy;
  if (const FailoverPolicy* policy = FindIn(namespaces_, NamespaceOf(key)); policy != nullptr)
    pod.policy = JoinPolicies(pod.policy, *policy);
  pod.foreign_volumes = facts.foreign_volumes;
  pod.plugin = facts.plugin;
  for (const std::string& claim : facts.claims) AddClaim(pod, claim);
  pod.labels = facts.labels;
  pod.asks = facts.asks;
  pod.scheduling = facts.scheduling;
  pod.deleting = facts.deleting;
  pod.deleted = facts.deleted;
  pod.running = facts.running;
  pod.crash_looping = facts.crash_looping;
  report_(PodSeen{std::move(pod)});
}

// The array's name is part of the volume's id. A volume of another driver, or one that is not known yet,
// makes the pod one with foreign volumes: it cannot be fenced, so the pod must not be moved.
void ObjectCache::AddClaim(Pod& pod, const std::string& claim) const {
  const VolumeFacts* volume = FindVolumeOfClaim(claim);
  const std::string array = volume == nullptr ? "" : ArrayNameIn(volume->volume.value());
  if (array.empty()) {
    pod.foreign_volumes = true;
    return;
  }
  pod.volumes[ArrayId(array)].insert(volume->volume);
  if (volume->block) pod.raw.insert(volume->volume);
  if (*volume->places != Scheduling()) pod.places.push_back(volume->places);
  if (const FailoverPolicy* policy = FindIn(classes_, volume->storage_class); policy != nullptr)
    pod.policy = JoinPolicies(pod.policy, *policy);
}

}  // namespace lunkeeper::fencing
