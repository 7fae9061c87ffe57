#include "fencing/core/places.h"

#include <algorithm>

namespace lunkeeper::fencing {
namespace {

// Why a node could not take a pod. Of several nodes the smallest counts: it is the least that would have to
// change.
enum class Obstacle { kNone, kArray, kSpread, kRoom, kNode };

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

// Besides itself. The scheduler counts no pod that is being deleted.
int64_t CountLike(const Pod& pod, const Requirements& like, const std::vector<const Pod*>& there) {
  const auto space = NamespaceOf(pod.id);
  return std::count_if(there.begin(), there.end(), [&](const Pod* other) {
    return other->id != pod.id && !other->deleting && NamespaceOf(other->id) == space &&
           SelectsPod(like, *other->labels);
  });
}

// The node that the pod leaves still counts, and has no more of its like then than the others that stay
// there: so no node may have more than that and the skew. Other nodes may have fewer still; that is not
// asked.
bool KeepsSpread(const Pod& pod, const Node& node, const Cluster& cluster,
                 const std::vector<const Pod*>& leaving) {
  const auto& spread = pod.scheduling->spread;
  if (spread.empty()) return true;
  const auto* own = cluster.FindNode(pod.node);
  if (!own || !SelectsNode(*pod.scheduling, *own->labels)) return true;
  auto stay = cluster.PodsOn(pod.node);
  std::erase_if(stay, [&](const Pod* other) { return IsAmong(leaving, other); });
  return std::all_of(spread.begin(), spread.end(), [&](const Spread& each) {
    const auto fewest = CountLike(pod, each.like, stay);
    return CountLike(pod, each.like, cluster.PodsOn(node.name)) + 1 - fewest <= each.max_skew;
  });
}

bool ReachesAll(const Pod& pod, const Node& node, const ReachTest& reaches) {
  return !reaches || std::all_of(pod.volumes.begin(), pod.volumes.end(), [&](const auto& entry) {
    return reaches(node.node_id, entry.first, entry.second);
  });
}

Obstacle ObstacleOn(const Pod& pod, const Node& node, const Cluster& cluster, const ReachTest& reaches,
                    const std::vector<const Pod*>& leaving) {
  const bool fits = TakesPods(node) && Fits(*pod.scheduling, *node.labels) &&
                    std::all_of(pod.places.begin(), pod.places.end(),
                                [&](const auto& place) { return Fits(*place, *node.labels); }) &&
                    !HasItsLike(pod, cluster.PodsOn(node.name));
  if (!fits) return Obstacle::kNode;
  if (!HasRoom(*node.labels, pod.asks)) return Obstacle::kRoom;
  if (!KeepsSpread(pod, node, cluster, leaving)) return Obstacle::kSpread;
  return ReachesAll(pod, node, reaches) ? Obstacle::kNone : Obstacle::kArray;
}

const char* TextOf(Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::kNone:
      return "";
    case Obstacle::kArray:
      return "no other node that could take it reaches its array";
    case Obstacle::kSpread:
      return "its topologySpreadConstraints count the node that it is on, and allow no other; with "
             "nodeTaintsPolicy: Honor they would not count it";
    case Obstacle::kRoom:
      return "no other node that could take it has the processors or the memory that it asks for";
    case Obstacle::kNode:
      break;
  }
  return "no other node could take it";
}

}  // namespace

bool TakesPods(const Node& node) {
  return node.ready && node.taint.empty() && node.plugin_taint == PluginTaint::kNone &&
         !node.out_of_service && !node.node_id.empty();
}

bool CouldRunOn(const Pod& pod, const Node& node, const Cluster& cluster, const ReachTest& reaches) {
  return ObstacleOn(pod, node, cluster, reaches, {}) == Obstacle::kNone;
}

std::string WhyNowhere(const Pod& pod, const NodeName& node, const Cluster& cluster, const ReachTest& reaches,
                       const std::vector<const Pod*>& leaving) {
  auto least = Obstacle::kNode;
  for (const auto& [name, other] : cluster.nodes()) {
    if (name == node) continue;
    least = std::min(least, ObstacleOn(pod, other, cluster, reaches, leaving));
    if (least == Obstacle::kNone) break;
  }
  return TextOf(least);
}

}  // namespace lunkeeper::fencing
