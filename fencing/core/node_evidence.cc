#include "fencing/core/node_evidence.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lunkeeper::fencing {

void NodeEvidence::NoteProbe(const ProbeAnswer& result, Instant now) {
  if (!result.answered) {
    ++unanswered;
    if (result.no_route && !no_route_at) no_route_at = now;
    return;
  }
  calibrated = true;
  unanswered = 0;
  no_route_at.reset();
  probe_answered_at = now;
}

ArraySide& NodeEvidence::SideOf(const ArrayChannel& array) {
  // Never behind its number, and where all arrays show something of the node, just there.
  auto at = arrays.begin() + static_cast<ptrdiff_t>(std::min(array.number + 1, arrays.size()));
  while (at != arrays.begin() && std::prev(at)->array->number > array.number) --at;
  if (at != arrays.begin() && std::prev(at)->array == &array) return *std::prev(at);
  const auto index = at - arrays.begin();
  arrays.reserve(arrays.size() + 1);
  auto& side = *arrays.emplace(arrays.begin() + index);
  side.array = &array;
  return side;
}

const ArraySide* NodeEvidence::Find(const ArrayId& array) const {
  for (const auto& side : arrays)
    if (side.array->id == array) return &side;
  return nullptr;
}

bool NodeEvidence::HasGrants() const {
  return std::any_of(arrays.begin(), arrays.end(), [](const auto& side) { return side.has_grants(); });
}

Instant LastSignOf(const NodeEvidence& node) {
  auto last = LatestOf(*node.met_at, node.heartbeat_at);
  for (const auto& side : node.arrays)
    last = LatestOf(last, side.heartbeat ? std::optional(side.heartbeat->until) : std::nullopt);
  return last;
}

std::optional<Instant> NodeEvidence::GrantedAt(const ArrayId& array, const VolumeId& volume) const {
  const auto* side = Find(array);
  const auto* held = side ? side->FindHolding(volume) : nullptr;
  return held && held->granted_then ? std::make_optional(held->since) : std::nullopt;
}

VolumesByArray NodeEvidence::HeldVolumes() const {
  VolumesByArray held;
  for (const auto& side : arrays)
    for (const auto& holding : side.use().holdings) held[side.array->id].insert(holding.volume);
  return held;
}

}  // namespace lunkeeper::fencing
