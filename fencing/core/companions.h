#pragma once
// Pods that must run beside others: required pod affinity by host name. Such a pod moves only if one of those
// others runs where it could go too, or moves with it. Only pods with a claim are seen. Where none of the
// others is seen, nothing is said of them. Made for one plan of one node; nothing fails.

#include <string>
#include <utility>
#include <vector>

#include "fencing/core/places.h"

namespace lunkeeper::fencing {

class Companions {
 public:
  explicit Companions(const Cluster& cluster, ReachTest reaches = {})
      : cluster_(cluster), reaches_(std::move(reaches)) {}

  // The pods on its node that have to leave it with `pod`, besides `leaving`.
  std::vector<const Pod*> NeededBy(const Pod& pod, const std::vector<const Pod*>& leaving);
  // Why `pod` would find none of them, if just `moving` leave its node; empty: it may find one.
  std::string WhyAlone(const Pod& pod, const std::vector<const Pod*>& moving);

 private:
  std::vector<const Pod*> BesideOn(const Pod& pod, const NodeName& node) const;
  // Good until the next call.
  const std::vector<const Pod*>& AllBeside(const Pod& pod);
  bool FindsElsewhere(const Pod& pod, bool perhaps);
  bool CouldGoWith(const Pod& pod, const Pod& other) const;

  const Cluster& cluster_;
  const ReachTest reaches_;
  // By the pod that was asked for first; replicas ask for the same.
  std::vector<std::pair<const Pod*, std::vector<const Pod*>>> all_;
};

}  // namespace lunkeeper::fencing
