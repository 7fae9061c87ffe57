#pragma once
// The instances of a machine: the nodes whose ids are its name and sixteen digits. Pure; nothing fails.

#include <vector>

#include "fencing/core/types.h"

namespace lunkeeper::fencing {

// Those of them in a map by NodeId, in order of their ids. "db.e1" is another machine than "db", although its
// ids may lie among those of "db".
template <class Map>
auto InstancesOf(Map& map, const NodeName& name) {
  const auto prefix = name.value() + ".";
  std::vector<decltype(&*map.begin())> instances;
  for (auto at = map.lower_bound(NodeId(prefix)); at != map.end(); ++at) {
    if (!at->first.value().starts_with(prefix)) break;
    if (NameOf(at->first) == name) instances.push_back(&*at);
  }
  return instances;
}

}  // namespace lunkeeper::fencing
