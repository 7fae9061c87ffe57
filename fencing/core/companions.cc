// The scheduler puts the pod only on a node where one pod meets all of its terms. A pod that meets its own is
// the first of its kind, and goes anywhere, if there is no other one at all. So of such pods all have to
// leave a node, or none can.

#include "fencing/core/companions.h"

#include <algorithm>

namespace lunkeeper::fencing {
namespace {

bool MayBeFirst(const Pod& pod) { return SelectsPod(*pod.scheduling->beside, *pod.labels); }

std::vector<const Pod*> PickBeside(const Pod& pod, std::vector<const Pod*> pods) {
  const auto space = NamespaceOf(pod.id);
  std::erase_if(pods, [&](const Pod* other) {
    return other->id == pod.id || NamespaceOf(other->id) != space ||
           !SelectsPod(*pod.scheduling->beside, *other->labels);
  });
  return pods;
}

}  // namespace

// What has no volume of ours is not moved.
std::vector<const Pod*> Companions::NeededBy(const Pod& pod, const std::vector<const Pod*>& leaving) {
  if (!pod.scheduling->beside) return {};
  auto needed = BesideOn(pod, pod.node);
  std::erase_if(needed, [&](const Pod* other) { return other->volumes.empty() || IsAmong(leaving, other); });
  if (!needed.empty() && FindsElsewhere(pod, false)) return {};
  return needed;
}

std::string Companions::WhyAlone(const Pod& pod, const std::vector<const Pod*>& moving) {
  if (!pod.scheduling->beside) return "";
  const Pod *stays = nullptr, *goes = nullptr;
  bool together = false;
  for (const Pod* other : BesideOn(pod, pod.node)) {
    const bool moves = IsAmong(moving, other);
    together = together || (moves && CouldGoWith(pod, *other));
    (moves ? goes : stays) = other;
  }
  if ((MayBeFirst(pod) ? !stays : together) || FindsElsewhere(pod, true)) return "";
  if (stays) return "it must run beside " + stays->id.value() + ", which is left alone";
  if (goes) return "no other node could take both it and " + goes->id.value() + ", which it must run beside";
  return AllBeside(pod).empty() ? "" : "no other node that could take it has a pod that it must run beside";
}

std::vector<const Pod*> Companions::BesideOn(const Pod& pod, const NodeName& node) const {
  return PickBeside(pod, cluster_.PodsOn(node));
}

const std::vector<const Pod*>& Companions::AllBeside(const Pod& pod) {
  for (const auto& [asker, found] : all_)
    if (NamespaceOf(asker->id) == NamespaceOf(pod.id) && asker->scheduling->beside == pod.scheduling->beside)
      return found;
  return all_.emplace_back(&pod, PickBeside(pod, cluster_.PodsInNamespaceOf(pod.id))).second;
}

// `perhaps`: one that waits for a node, or is on a failed one, may come to any.
bool Companions::FindsElsewhere(const Pod& pod, bool perhaps) {
  const auto& all = AllBeside(pod);
  return std::any_of(all.begin(), all.end(), [&](const Pod* other) {
    if (other->node == pod.node) return false;
    const auto* node = cluster_.FindNode(other->node);
    return node && TakesPods(*node) ? CouldRunOn(pod, *node, cluster_, reaches_) : perhaps;
  });
}

bool Companions::CouldGoWith(const Pod& pod, const Pod& other) const {
  const auto& nodes = cluster_.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& entry) {
    const auto& [name, node] = entry;
    return name != pod.node && CouldRunOn(pod, node, cluster_, reaches_) &&
           CouldRunOn(other, node, cluster_, reaches_);
  });
}

}  // namespace lunkeeper::fencing
