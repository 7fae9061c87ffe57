// What faults and people do to the API server's objects.

#include "fencing/sim/api.h"

namespace lunkeeper::fencing::sim {

void Api::TakeCopy() {
  copy_ = objects_;
  lease_copy_ = lease_;
}

// etcd goes back in time. Versions are never used again, as the procedure for a restore demands.
void Api::RestoreCopy() {
  objects_ = copy_;
  lease_ = lease_copy_;
  lease_.version = NextVersion();
  for (auto& [name, node] : objects_.nodes) node.version = NextVersion();
  for (auto& [id, fence] : objects_.fences) fence.version = NextVersion();
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
  Put(fence);
}

void Api::DeleteFence(const NodeId& node) {
  const auto found = objects_.fences.find(node);
  if (found == objects_.fences.end()) return;
  found->second.deleting = true;
  found->second.version = NextVersion();
  Push(FenceSeen{found->second});
}

void Api::EndAllByHand() {
  const auto objects = objects_;
  for (const auto& [name, node] : objects.nodes)
    if (node.out_of_service) SetOutOfService(name, false);
  for (const auto& [node, fence] : objects.fences)
    if (!fence.requested_by.empty()) DeleteFence(node);
}

void Api::ForceDeleteByHand(const PodId& id) {
  const auto found = objects_.pods.find(id);
  if (found == objects_.pods.end()) return;
  const auto uid = found->second.uid;
  Ended(uid);
}

}  // namespace lunkeeper::fencing::sim
