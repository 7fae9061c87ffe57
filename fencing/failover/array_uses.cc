#include "fencing/failover/array_uses.h"

#include <map>
#include <set>
#include <utility>

#include "devices/array/arrays.h"
#include "devices/node_id.h"

namespace lunkeeper::fencing {
namespace {

// The uses are collected here, by volume and node.
class UseCollector {
 public:
  UseCollector(const State& state, const ArrayId& array) : state_(state), array_(array) {}

  // A machine may have several instances. One whose heartbeats arrive counts.
  void AddNode(const NodeId& id, const NodeEvidence& node) {
    if (state_.evidence.Arrives(node, state_.now)) heard_.insert(NameOf(id));
    for (const VolumeId& volume : node.heartbeat.present)
      if (ArrayNameIn(volume.value()) == array_.value()) {
        VolumeUse& use = UseAt(volume, NameOf(id));
        const bool others_ended = !use.has_device || use.io_ended;
        use.io_ended = others_ended && node.heartbeat.failed.contains(volume);
        use.has_device = true;
      }
    if (const ArraySide* side = node.Find(array_))
      for (const ArraySide::Held& held : side->use().holdings) UseAt(held.volume, NameOf(id));
  }
  void AddPod(const Pod& pod) {
    const auto volumes = pod.volumes.find(array_);
    if (volumes == pod.volumes.end()) return;
    for (const VolumeId& volume : volumes->second) UseAt(volume, pod.node).pods.emplace_back(pod.id, pod.uid);
  }

  std::vector<VolumeUse> TakeUses() {
    std::vector<VolumeUse> all;
    for (auto& [place, use] : uses_) {
      use.is_silent = !heard_.contains(use.node);
      all.push_back(std::move(use));
    }
    return all;
  }

 private:
  VolumeUse& UseAt(const VolumeId& volume, const NodeName& node) {
    VolumeUse& use = uses_[{volume, node}];
    use.volume = volume;
    use.node = node;
    return use;
  }

  const State& state_;
  const ArrayId& array_;
  std::set<NodeName> heard_;
  std::map<std::pair<VolumeId, NodeName>, VolumeUse> uses_;
};

}  // namespace

std::vector<VolumeUse> UsesOf(const State& state, const ArrayId& array) {
  UseCollector uses(state, array);
  for (const auto& [id, node] : state.evidence.nodes()) uses.AddNode(id, node);
  for (const auto& entry : state.cluster.nodes())
    for (const Pod* pod : state.cluster.PodsOn(entry.first)) uses.AddPod(*pod);
  return uses.TakeUses();
}

}  // namespace lunkeeper::fencing
