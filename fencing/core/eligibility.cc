// A pod is moved only if a controller makes it anew, somewhere it fits, and if all of its volumes can be
// fenced here. Anything else would trade a pod that may come back with its node for one that is gone.

#include "fencing/core/eligibility.h"

#include <algorithm>

namespace lunkeeper::fencing {
namespace {

// A pod like it is there already, which it must not be beside.
bool HasItsLike(const Pod& pod, const std::vector<const Pod*>& there) {
  const auto& apart = pod.scheduling->anti_affinity;
  if (apart.empty()) return false;
  return std::any_of(there.begin(), there.end(), [&](const Pod* other) {
    const auto& theirs = other->scheduling->anti_affinity;
    return other->id != pod.id && !other->deleting &&
           std::find_first_of(apart.begin(), apart.end(), theirs.begin(), theirs.end()) != apart.end();
  });
}

// Where no driver of ours is registered a pod would wait for its volumes for ever.
bool CouldRunOn(const Pod& pod, const Node& node, const Cluster& cluster) {
  return node.ready && node.taint.empty() && node.plugin_taint == PluginTaint::kNone &&
         !node.out_of_service && !node.node_id.empty() && Fits(*pod.scheduling, *node.labels) &&
         std::all_of(pod.places.begin(), pod.places.end(),
                     [&](const auto& place) { return Fits(*place, *node.labels); }) &&
         !HasItsLike(pod, cluster.PodsOn(node.name));
}

bool ReachesAll(const Pod& pod, const Node& node, const ReachTest& reaches) {
  return !node.node_id.empty() && std::all_of(pod.volumes.begin(), pod.volumes.end(), [&](const auto& entry) {
    return reaches(node.node_id, entry.first);
  });
}

bool UsesArrays(const Pod& pod, const std::set<ArrayId>& arrays) {
  return std::any_of(pod.volumes.begin(), pod.volumes.end(),
                     [&](const auto& entry) { return arrays.empty() || arrays.contains(entry.first); });
}

void AddVolumes(const Pod& pod, VolumeSet& volumes) {
  for (const auto& [array, used] : pod.volumes) volumes.insert(used.begin(), used.end());
}

bool SharesVolume(const Pod& pod, const VolumeSet& volumes) {
  return std::any_of(pod.volumes.begin(), pod.volumes.end(),
                     [&](const auto& entry) { return HaveCommonVolume(entry.second, volumes); });
}

// Pods that share a volume with one that stays have to stay too, and so on, until nothing changes.
void LeaveSharers(Plan& plan, VolumeSet staying) {
  for (bool changed = true; changed;) {
    const auto stays = std::stable_partition(plan.move.begin(), plan.move.end(),
                                             [&](const Pod* pod) { return !SharesVolume(*pod, staying); });
    changed = stays != plan.move.end();
    for (auto pod = stays; pod != plan.move.end(); ++pod) {
      AddVolumes(**pod, staying);
      plan.left.emplace_back((*pod)->id, "it shares a volume with a pod that is left alone");
    }
    plan.move.erase(stays, plan.move.end());
  }
}

}  // namespace

std::vector<const Pod*> WithSharers(std::vector<const Pod*> pods, const std::vector<const Pod*>& all) {
  VolumeSet taken;
  for (const Pod* pod : pods) AddVolumes(*pod, taken);
  for (bool changed = !pods.empty(); changed;) {
    changed = false;
    for (const Pod* pod : all) {
      if (!SharesVolume(*pod, taken) || std::find(pods.begin(), pods.end(), pod) != pods.end()) continue;
      AddVolumes(*pod, taken);
      pods.push_back(pod);
      changed = true;
    }
  }
  return pods;
}

bool HaveCommonVolume(const VolumeSet& a, const VolumeSet& b) {
  return std::any_of(a.begin(), a.end(), [&](const VolumeId& volume) { return b.contains(volume); });
}

bool Covers(const VolumeSet& b, const VolumeSet& a) {
  return std::includes(b.begin(), b.end(), a.begin(), a.end());
}

std::string WhyLeft(const Pod& pod, const NodeName& node, const Cluster& cluster, const Settings& settings,
                    const ReachTest& reaches) {
  if (pod.foreign_volumes) return "it has volumes of another driver too";
  if (pod.policy == FailoverPolicy::kNever) return "opted out by lunkeeper.io/failover";
  if (settings.opt_in && pod.policy != FailoverPolicy::kAlways)
    return "not opted in by lunkeeper.io/failover";
  for (const auto& [array, used] : pod.volumes)
    for (const auto& volume : used)
      if (cluster.IsHeldBack(volume)) return "nodes died soon after they mounted " + volume.value();
  if (pod.owner_kind.empty()) return "it has no owner that would re-create it";
  if (!settings.owner_kinds.contains(pod.owner_kind)) return "its owner is a " + pod.owner_kind;
  const auto& nodes = cluster.nodes();
  // Not a scheduler: only what no scheduler could overrule. A pod that is moved and does not fit stays
  // Pending.
  bool fits = false;
  for (const auto& [name, other] : nodes) {
    if (name == node || !CouldRunOn(pod, other, cluster)) continue;
    fits = true;
    if (!reaches || ReachesAll(pod, other, reaches)) return "";
  }
  return fits ? "no other node that could take it reaches its array" : "no other node could take it";
}

Plan PlanMove(const Cluster& cluster, const Settings& settings, const NodeId& node,
              const std::set<ArrayId>& arrays, const ReachTest& reaches) {
  Plan plan;
  VolumeSet staying;
  std::vector<const Pod*> affected;
  for (const auto* pod : cluster.PodsOn(NameOf(node)))
    if (!pod->volumes.empty() && UsesArrays(*pod, arrays)) affected.push_back(pod);
  for (const auto* pod : WithSharers(std::move(affected), cluster.PodsOn(NameOf(node)))) {
    auto why = WhyLeft(*pod, pod->node, cluster, settings, reaches);
    if (why.empty()) {
      plan.move.push_back(pod);
    } else {
      AddVolumes(*pod, staying);
      plan.left.emplace_back(pod->id, std::move(why));
    }
  }
  LeaveSharers(plan, std::move(staying));
  for (const auto* pod : plan.move)
    for (const auto& [array, used] : pod->volumes) plan.volumes[array].insert(used.begin(), used.end());
  return plan;
}

}  // namespace lunkeeper::fencing
