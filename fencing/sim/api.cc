// Writes are conditional, as the real API server's: each object has a version, and a write that names another
// one is a conflict. A change reaches every watch that is open, each with a delay of its own but in order;
// one that a cut keeps from its reader breaks the watch, as a real watch never skips an event.
//
// Behind the API server stand the controllers that a failover meets: the StatefulSet controller makes a pod
// anew when it is gone, the scheduler places it, the node lifecycle controller marks nodes, the garbage
// collector removes the pods of nodes that are gone. At the end come what people and a restore of etcd do.

#include "fencing/sim/api.h"

#include <algorithm>

#include "fencing/sim/checker.h"

namespace lunkeeper::fencing::sim {
namespace {

KubeletLease LeaseAt(const NodeName& name, WorldTime at) {
  return {name, Version(std::to_string(at.since_start().milliseconds())), KubeletTime(at.since_start())};
}

constexpr Span kNodeGrace = 40_s, kNodeLook = 1_s, kRetry = 1_s, kOrphanPods = 20_s;

}  // namespace

Api::Api(World& world) : world_(world), endpoint_(world.AddEndpoint()) {
  world_.After(kNodeLook, [this] { LookAfterNodes(); });
}

void Api::AddNode(const NodeName& name, const NodeId& instance) {
  Node node;
  node.name = name;
  node.uid = Uid("node" + std::to_string(++uid_));
  node.node_id = instance;
  node.version = NextVersion();
  objects_.nodes[name] = node;
  renewed_[name] = world_.now();
  Push(NodeSeen{node});
}

void Api::AddWorkload(const Workload& workload) {
  workloads_.push_back(workload);
  Ensure(workload);
}

Written Api::Put(const NodeFence& fence) {
  const auto found = objects_.fences.find(fence.node);
  const bool exists = found != objects_.fences.end();
  const auto stored = exists ? found->second.version : Version();
  if (!exists && !fence.version.empty()) return {Outcome::kGone, {}};
  if (stored != fence.version) return {Outcome::kConflict, {}};
  auto& object = objects_.fences[fence.node];
  const auto uid = exists ? object.uid : Uid("fence" + std::to_string(++uid_));
  const bool deleting = exists && object.deleting;
  object = fence;
  object.uid = uid;
  object.deleting = deleting;
  object.version = NextVersion();
  Push(FenceSeen{object});
  return {Outcome::kOk, object.version};
}

Outcome Api::Remove(const RemoveNodeFence& call) {
  const auto found = objects_.fences.find(call.node);
  if (found == objects_.fences.end()) return Outcome::kGone;
  if (found->second.uid != call.uid || found->second.version != call.version) return Outcome::kConflict;
  objects_.fences.erase(found);
  Push(FenceGone{call.node});
  return Outcome::kOk;
}

Written Api::Taint(const SetTaint& call) {
  const auto found = objects_.nodes.find(call.node);
  if (found == objects_.nodes.end()) return {Outcome::kGone, {}};
  auto& node = found->second;
  if (node.version != call.expected) return {Outcome::kConflict, {}};
  if (call.value.empty()) world_.checker->Untainting(node);
  node.taint = call.value;
  node.version = NextVersion();
  Push(NodeSeen{node});
  return {Outcome::kOk, node.version};
}

Outcome Api::Delete(const DeletePod& call) {
  const auto found = objects_.pods.find(call.pod);
  if (found == objects_.pods.end()) return Outcome::kGone;
  auto& pod = found->second;
  if (pod.uid != call.uid && !world_.Has(Mutant::kDeleteAnyUid)) return Outcome::kConflict;
  world_.checker->Deleting(pod, call.grace);
  if (call.grace == Grace::kOrdinary && !pod.node.empty()) {
    pod.deleting = true;
    Push(PodSeen{pod});
    return Outcome::kOk;
  }
  const auto uid = pod.uid;
  Ended(uid);
  return Outcome::kOk;
}

void Api::Charge(const VolumeId& volume, const ChargedNodes& nodes) {
  objects_.charged[volume] = nodes;
  Push(VolumeCharged{volume, nodes});
}

void Api::Ended(const Uid& uid) {
  for (const auto& [id, pod] : objects_.pods) {
    if (pod.uid != uid) continue;
    const auto gone = id;
    objects_.pods.erase(gone);
    Push(PodGone{gone});
    for (const auto& workload : workloads_)
      if (workload.id == gone) EnsureSoon(workload);
    return;
  }
}

Written Api::WriteLease(const std::string& writer, const Version& expected) {
  if (lease_.version != expected) return {Outcome::kConflict, {}};
  lease_ = {writer, NextVersion(), {}};
  return {Outcome::kOk, lease_.version};
}

void Api::PushTo(Reflector& reflector, decltype(Event::what) what, bool twice) {
  const auto delay = world_.random().Percent(late_percent) ? world_.random().Between(50_ms, 3_s) : 2_ms;
  reflector.next_at = std::max(reflector.next_at, world_.now() + delay);
  const auto index = static_cast<size_t>(&reflector - reflectors_.data());
  world_.After(reflector.next_at - world_.now(),
               [this, index, life = reflector.life, twice, what = std::move(what)] {
                 auto& to = reflectors_[index];
                 if (to.life != life) return;
                 to.watch(what);
                 if (twice) to.watch(what);
               });
}

void Api::Push(const decltype(Event::what)& what) {
  for (auto& reflector : reflectors_) {
    // A watch that loses one event is over; its reader notices by its deadline.
    if (!world_.Open(endpoint_, reflector.to)) reflector.broken = true;
    if (!reflector.broken) PushTo(reflector, what, world_.random().Percent(late_percent / 4));
  }
}

void Api::List(size_t number, Endpoint to, Watch watch) {
  if (reflectors_.size() <= number) reflectors_.resize(number + 1);
  auto& reflector = reflectors_[number];
  reflector = {std::move(watch), to, world_.now(), reflector.life + 1, false};
  for (const auto& [name, node] : objects_.nodes) PushTo(reflector, NodeSeen{node}, false);
  for (const auto& [name, at] : renewed_) PushTo(reflector, LeaseAt(name, at), false);
  for (const auto& [id, pod] : objects_.pods) PushTo(reflector, PodSeen{pod}, false);
  for (const auto& [id, nodes] : objects_.charged) PushTo(reflector, VolumeCharged{id, nodes}, false);
  for (const auto& [id, fence] : objects_.fences) PushTo(reflector, FenceSeen{fence}, false);
  PushTo(reflector, ApiSynced{}, false);
}

void Api::BreakWatches() {
  for (auto& reflector : reflectors_) {
    reflector.broken = true;
    ++reflector.life;
    world_.Send(endpoint_, reflector.to, [watch = reflector.watch] { watch(ApiLost{}); });
  }
}

void Api::Ensure(const Workload& workload) {
  if (objects_.pods.contains(workload.id)) return;
  if (!up) return EnsureSoon(workload);
  Pod pod;
  pod.id = workload.id;
  pod.uid = Uid(workload.id.value() + "-" + std::to_string(++uid_));
  pod.owner_kind = workload.owner_kind;
  pod.policy = workload.policy;
  pod.volumes = workload.volumes;
  objects_.pods[pod.id] = pod;
  Push(PodSeen{pod});
  world_.After(world_.random().Between(5_ms, 50_ms), [this, id = pod.id] { Schedule(id); });
}

void Api::EnsureSoon(const Workload& workload) {
  world_.After(up ? world_.random().Between(5_ms, 60_ms) : kRetry, [this, workload] { Ensure(workload); });
}

void Api::Schedule(const PodId& id) {
  const auto found = objects_.pods.find(id);
  if (found == objects_.pods.end() || !found->second.node.empty()) return;
  std::vector<NodeName> fit;
  for (const auto& [name, node] : objects_.nodes)
    if (node.ready && node.taint.empty() && !node.out_of_service) fit.push_back(name);
  if (!up || fit.empty()) {
    world_.After(kRetry, [this, id] { Schedule(id); });
    return;
  }
  found->second.node = world_.random().Pick(fit);
  world_.Trace("scheduled " + id.value() + " on " + found->second.node.value());
  Push(PodSeen{found->second});
}

// The node lifecycle controller and the pod garbage collector.
void Api::LookAfterNodes() {
  world_.After(kNodeLook, [this] { LookAfterNodes(); });
  if (!up) return;
  for (auto& [name, node] : objects_.nodes) {
    const bool ready = world_.now() - renewed_[name] < kNodeGrace;
    if (ready == node.ready) continue;
    node.ready = ready;
    node.version = NextVersion();
    Push(NodeSeen{node});
  }
  if (world_.now().since_start() % kOrphanPods >= kNodeLook) return;
  std::vector<Uid> orphans;
  for (const auto& [id, pod] : objects_.pods)
    if (!pod.node.empty() && !objects_.nodes.contains(pod.node)) orphans.push_back(pod.uid);
  for (const auto& uid : orphans) Ended(uid);
}

std::vector<Pod> Api::PodsOn(const NodeName& name) const {
  std::vector<Pod> result;
  for (const auto& [id, pod] : objects_.pods)
    if (pod.node == name) result.push_back(pod);
  return result;
}

std::optional<KubeletState> Api::ReadKubelet(const NodeName& name) const {
  const auto node = objects_.nodes.find(name);
  if (node == objects_.nodes.end()) return std::nullopt;
  const auto renewed = renewed_.find(name);
  if (renewed == renewed_.end()) return KubeletState{{}, node->second.ready};
  const auto lease = LeaseAt(name, renewed->second);
  return KubeletState{lease.renewal, node->second.ready, lease.renewed};
}

void Api::Renew(const NodeName& name, const NodeId& instance) {
  if (!objects_.nodes.contains(name)) AddNode(name, instance);
  auto& node = objects_.nodes.at(name);
  renewed_[name] = world_.now();
  Push(LeaseAt(name, renewed_[name]));
  if (node.node_id == instance) return;
  node.node_id = instance;  // its driver registered anew
  node.version = NextVersion();
  Push(NodeSeen{node});
}

void Api::Report(const Uid& uid, bool running, bool crash_looping) {
  for (auto& [id, pod] : objects_.pods) {
    if (pod.uid != uid || (pod.running == running && pod.crash_looping == crash_looping)) continue;
    pod.running = running;
    pod.crash_looping = crash_looping;
    Push(PodSeen{pod});
  }
}

void Api::TakeCopy() {
  copy_ = objects_;
  lease_copy_ = lease_;
}

// etcd goes back in time. Versions are never used again, as the procedure for a restore demands.
void Api::RestoreCopy() {
  const auto charged = objects_.charged;
  objects_ = copy_;
  lease_ = lease_copy_;
  lease_.version = NextVersion();
  for (auto& [name, node] : objects_.nodes) node.version = NextVersion();
  for (auto& [id, fence] : objects_.fences) fence.version = NextVersion();
  // A volume that was charged since the copy is free of that again; its watch says so.
  for (const auto& entry : charged) objects_.charged.try_emplace(entry.first);
  BreakWatches();
  for (const auto& workload : workloads_) EnsureSoon(workload);
  for (const auto& [id, pod] : objects_.pods)
    if (pod.node.empty()) world_.After(10_ms, [this, pod_id = id] { Schedule(pod_id); });
}

void Api::DeleteNode(const NodeName& name) {
  objects_.nodes.erase(name);
  Push(NodeGone{name});
}

void Api::SetOutOfService(const NodeName& name, bool on) {
  const auto found = objects_.nodes.find(name);
  if (found == objects_.nodes.end()) return;
  found->second.out_of_service = on;
  found->second.version = NextVersion();
  Push(NodeSeen{found->second});
}

void Api::CreateFence(const NodeId& node) {
  if (objects_.fences.contains(node)) return;
  NodeFence fence;
  fence.node = node;
  fence.cause = "maintenance";
  fence.requested_by = "an operator";
  fence.graceful = world_.random().Percent(40);
  Put(fence);
}

void Api::DeleteFence(const NodeId& node) {
  const auto found = objects_.fences.find(node);
  if (found == objects_.fences.end()) return;
  found->second.deleting = true;
  found->second.version = NextVersion();
  Push(FenceSeen{found->second});
}

void Api::EndAllAsOperator() {
  const auto objects = objects_;
  for (const auto& [name, node] : objects.nodes)
    if (node.out_of_service) SetOutOfService(name, false);
  for (const auto& [node, fence] : objects.fences)
    if (!fence.requested_by.empty()) DeleteFence(node);
}

void Api::AllowVolumesAsOperator() {
  const auto charged = objects_.charged;
  for (const auto& entry : charged) Charge(entry.first, {});
}

void Api::ForceDeleteAsOperator(const PodId& id) {
  const auto found = objects_.pods.find(id);
  if (found == objects_.pods.end()) return;
  const auto uid = found->second.uid;
  Ended(uid);
}

}  // namespace lunkeeper::fencing::sim
