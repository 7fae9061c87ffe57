#pragma once
// Which pods of a node are moved when it fails, which are left alone and why. Pure functions of what is seen.

#include <string>
#include <utility>
#include <vector>

#include "fencing/core/companions.h"
#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

struct Plan {
  std::vector<const Pod*> move;
  std::vector<const Pod*> beside;                   // without a volume: their label lets them go with those
  VolumesByArray volumes;                           // all of ours that those pods use
  std::vector<std::pair<PodId, std::string>> left;  // and why
};

// The pods of `node`, which is the one its name means now, that may be moved. A shared volume is moved with
// all of its pods there, or not at all; and so is a pod with the others that it must run beside. With
// `arrays` not empty only the pods that use one of those, or a volume of `begun`, and the pods that are tied
// to them so. With `reaches` only the pods that could run on a node which reaches all their arrays. A pod
// without a volume is asked about only where no array is named.
Plan PlanMove(const Cluster& cluster, const Settings& settings, const NodeId& node,
              const std::set<ArrayId>& arrays = {}, const ReachTest& reaches = {},
              const VolumesByArray& begun = {});

// The pods of `node` that may start anew: by the same rules, but there or elsewhere.
Plan PlanRestart(const Cluster& cluster, const Settings& settings, const NodeId& node);

// `pods` with those of `all` that share a volume with one of them, or that one of them must run beside, and
// so on.
std::vector<const Pod*> WithTied(std::vector<const Pod*> pods, const std::vector<const Pod*>& all,
                                 Companions& companions);
bool HaveCommonVolume(const VolumeSet& a, const VolumeSet& b);
// a ⊆ b.
bool Covers(const VolumeSet& b, const VolumeSet& a);

}  // namespace lunkeeper::fencing
