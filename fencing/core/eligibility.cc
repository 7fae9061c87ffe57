// A pod is moved only if a controller makes it anew, somewhere it fits, and if all of its volumes can be
// fenced here. Anything else would trade a pod that may come back with its node for one that is gone.

#include "fencing/core/eligibility.h"

#include <algorithm>
#include <functional>

namespace lunkeeper::fencing {
namespace {

// What is begun is finished, also when the pod for whose sake it was begun is gone.
bool IsAffected(const Pod& pod, const std::set<ArrayId>& arrays, const VolumesByArray& begun) {
  return std::any_of(pod.volumes.begin(), pod.volumes.end(), [&](const auto& entry) {
    const auto some = begun.find(entry.first);
    return arrays.empty() || arrays.contains(entry.first) ||
           (some != begun.end() && HaveCommonVolume(entry.second, some->second));
  });
}

void AddVolumes(const Pod& pod, VolumeSet& volumes) {
  for (const auto& [array, used] : pod.volumes) volumes.insert(used.begin(), used.end());
}

bool SharesVolume(const Pod& pod, const VolumeSet& volumes) {
  return std::any_of(pod.volumes.begin(), pod.volumes.end(),
                     [&](const auto& entry) { return HaveCommonVolume(entry.second, volumes); });
}

// `pods` with those of `all` that share a volume with one of them, and so on: what is fenced from one is
// fenced from all of them.
std::vector<const Pod*> WithSharers(std::vector<const Pod*> pods, const std::vector<const Pod*>& all) {
  VolumeSet taken;
  for (const Pod* pod : pods) AddVolumes(*pod, taken);
  for (bool changed = !pods.empty(); changed;) {
    changed = false;
    for (const Pod* pod : all) {
      if (!SharesVolume(*pod, taken) || IsAmong(pods, pod)) continue;
      AddVolumes(*pod, taken);
      pods.push_back(pod);
      changed = true;
    }
  }
  return pods;
}

// Also for `*`: such a pod belongs to its node, and would only be made there again.
bool BelongsToNode(const std::string& kind) { return kind == "DaemonSet" || kind == "Node"; }

// As Settings::owner_kinds says.
bool MayReplace(const std::string& owner, const std::set<std::string>& listed) {
  const auto kind = owner.substr(0, owner.find('.'));
  return listed.contains(owner) || listed.contains(kind) || (listed.contains("*") && !BelongsToNode(kind));
}

// Such a pod is only known here if it says so itself (facts.h). None of another driver either.
bool IsLabelledWithoutVolume(const Pod& pod) {
  return !pod.plugin && pod.volumes.empty() && !pod.foreign_volumes && pod.policy != FailoverPolicy::kUnsaid;
}

// Of this pod alone; it is to run elsewhere than on `node`.
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
  if (!MayReplace(pod.owner_kind, settings.owner_kinds)) return "its owner is a " + pod.owner_kind;
  return WhyNowhere(pod, node, cluster, reaches);
}

// What each of the pods itself says. Returns the volumes that stay.
VolumeSet Sort(const std::vector<const Pod*>& pods, const std::function<std::string(const Pod&)>& why_left,
               Plan& plan) {
  VolumeSet staying;
  for (const auto* pod : pods) {
    auto why = why_left(*pod);
    if (why.empty()) {
      plan.move.push_back(pod);
    } else {
      AddVolumes(*pod, staying);
      plan.left.emplace_back(pod->id, std::move(why));
    }
  }
  return staying;
}

using WhyNow = std::function<std::string(const Pod&)>;

// Pods that are tied to one that stays have to stay too, and so on, until nothing changes. `why_now`: why
// a pod cannot leave with just the pods that still do. One after the other by id, so that each leader and
// each tick picks the same of two of which one can leave.
void LeaveTied(Plan& plan, VolumeSet staying, const WhyNow& why_now) {
  std::ranges::sort(plan.move, {}, &Pod::id);
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto* pod : std::vector(plan.move)) {
      std::string why;
      if (SharesVolume(*pod, staying)) {
        why = "it shares a volume with a pod that is left alone";
      } else if (why_now) {
        why = why_now(*pod);
      }
      if (why.empty()) continue;
      AddVolumes(*pod, staying);
      plan.left.emplace_back(pod->id, std::move(why));
      std::erase(plan.move, pod);
      changed = true;
    }
  }
}

}  // namespace

std::vector<const Pod*> WithTied(std::vector<const Pod*> pods, const std::vector<const Pod*>& all,
                                 Companions& companions) {
  pods = WithSharers(std::move(pods), all);
  for (size_t i = 0; i < pods.size(); ++i) {
    auto more = companions.NeededBy(*pods[i], pods);
    std::erase_if(more, [&](const Pod* pod) { return !IsAmong(all, pod); });
    if (more.empty()) continue;
    more.insert(more.begin(), pods.begin(), pods.end());
    pods = WithSharers(std::move(more), all);
  }
  return pods;
}

bool HaveCommonVolume(const VolumeSet& a, const VolumeSet& b) {
  return std::any_of(a.begin(), a.end(), [&](const VolumeId& volume) { return b.contains(volume); });
}

bool Covers(const VolumeSet& b, const VolumeSet& a) {
  return std::includes(b.begin(), b.end(), a.begin(), a.end());
}

Plan PlanMove(const Cluster& cluster, const Settings& settings, const NodeId& node,
              const std::set<ArrayId>& arrays, const ReachTest& reaches, const VolumesByArray& begun) {
  std::vector<const Pod*> there, without_volume, affected;
  for (const auto* pod : cluster.PodsOn(NameOf(node))) {
    if (!pod->volumes.empty()) there.push_back(pod);
    // A lost path to arrays is no trouble of its own.
    if (arrays.empty() && IsLabelledWithoutVolume(*pod)) without_volume.push_back(pod);
    if (IsAffected(*pod, arrays, begun)) affected.push_back(pod);
  }
  Companions companions(cluster, reaches);
  const auto pods = WithTied(std::move(affected), there, companions);
  Plan plan;
  const auto why_left = [&](const Pod& pod) { return WhyLeft(pod, pod.node, cluster, settings, reaches); };
  auto staying = Sort(pods, why_left, plan);
  for (const auto* pod : without_volume) {
    auto why = why_left(*pod);
    why.empty() ? plan.beside.push_back(pod) : (void)plan.left.emplace_back(pod->id, std::move(why));
  }
  LeaveTied(plan, std::move(staying), [&](const Pod& pod) {
    auto leaving = plan.move;
    leaving.insert(leaving.end(), plan.beside.begin(), plan.beside.end());
    auto why = companions.WhyAlone(pod, leaving);
    const bool counts = why.empty() && !pod.scheduling->spread.empty();
    return counts ? WhyNowhere(pod, pod.node, cluster, reaches, leaving) : why;
  });
  for (const auto* pod : plan.move)
    for (const auto& [array, used] : pod->volumes) plan.volumes[array].insert(used.begin(), used.end());
  return plan;
}

Plan PlanRestart(const Cluster& cluster, const Settings& settings, const NodeId& node) {
  const auto why_left = [&](const Pod& pod) { return WhyLeft(pod, NodeName(), cluster, settings, {}); };
  Plan plan;
  LeaveTied(plan, Sort(cluster.PodsOn(NameOf(node)), why_left, plan), {});
  return plan;
}

}  // namespace lunkeeper::fencing
