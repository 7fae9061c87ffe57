#pragma once
// Which pods of a node are moved when it fails, which are left alone and why. Pure functions of what is seen.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fencing/core/cluster.h"
#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

struct Plan {
  std::vector<const Pod*> move;
  VolumesByArray volumes;                           // all of ours that those pods use
  std::vector<std::pair<PodId, std::string>> left;  // and why
};

// Whether a node reaches an array now; empty: that is not asked.
using ReachTest = std::function<bool(const NodeId&, const ArrayId&)>;

// The pods of `node`, which is the one its name means now, that may be moved. A shared volume is moved with
// all of its pods there, or not at all. With `arrays` not empty only the pods that use one of those,
// and the pods that share a volume with them.
// With `reaches` only the pods that could run on a node which reaches all their arrays.
Plan PlanMove(const Cluster& cluster, const Settings& settings, const NodeId& node,
              const std::set<ArrayId>& arrays = {}, const ReachTest& reaches = {});

// Why this pod alone would not be moved off `node`; empty: it would be.
std::string WhyLeft(const Pod& pod, const NodeName& node, const Cluster& cluster, const Settings& settings,
                    const ReachTest& reaches = {});

// `pods` with those of `all` that share a volume with one of them, and so on: what is fenced from one is
// fenced from all of them.
std::vector<const Pod*> WithSharers(std::vector<const Pod*> pods, const std::vector<const Pod*>& all);
bool HaveCommonVolume(const VolumeSet& a, const VolumeSet& b);
// a ⊆ b.
bool Covers(const VolumeSet& b, const VolumeSet& a);

}  // namespace lunkeeper::fencing
