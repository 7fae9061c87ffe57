#pragma once
// Where a pod could run instead. Not a scheduler: only what no scheduler could overrule, as far as it is
// seen. A pod that is moved and fits nowhere stays Pending. Pure functions of what is seen.

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "fencing/core/cluster.h"

namespace lunkeeper::fencing {

// Whether a node reaches an array now, for the sake of these volumes there; empty: that is not asked.
using ReachTest = std::function<bool(const NodeId&, const ArrayId&, const VolumeSet&)>;

inline bool IsAmong(const std::vector<const Pod*>& pods, const Pod* pod) {
  return std::find(pods.begin(), pods.end(), pod) != pods.end();
}

// It takes pods at all. Where no driver of ours is registered a pod would wait for its volumes for ever.
bool TakesPods(const Node& node);
// `pod`, which runs on another node now.
bool CouldRunOn(const Pod& pod, const Node& node, const Cluster& cluster, const ReachTest& reaches);
// Why no other node than `node` could take the pod; empty: one could. `leaving`: pods that leave its node
// with it, and count there no more.
std::string WhyNowhere(const Pod& pod, const NodeName& node, const Cluster& cluster, const ReachTest& reaches,
                       const std::vector<const Pod*>& leaving = {});

}  // namespace lunkeeper::fencing
