#include "fencing/core/node_evidence.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lunkeeper::fencing {
namespace {

bool HeldBefore(const ArraySide::Held& held, const VolumeId& volume) { return held.volume < volume; }

}  // namespace

void ArrayChannel::NoteLife(const NodeId& node, Instant from, Instant until, Span gap) {
  if (!latest_at || from - *latest_at >= gap) heard_since = until;
  if (node == latest_node) {
    latest_at = std::max(latest_at, std::optional(from));
  } else if (from >= latest_at) {
    others_at = std::exchange(latest_at, from);
    latest_node = node;
  } else {
    others_at = std::max(others_at, std::optional(from));
  }
}

Span ArrayChannel::SilenceSince(const std::optional<StorageSign>& sign, Instant start, Instant now,
                                Span lasts) const {
  if (!looked_at) return {};
  const auto end = *looked_at + std::min(now - *viewed_at, lasts);
  return std::max(Span(), end - (sign ? LatestOf(start, sign->counts_from) : start));
}

// While nobody looked the array may have been away for all, and nodes come back one by one. So the first look
// after a long time proves nothing against a node that was not missing before: it may be missing from now on.
StorageSign::StorageSign(Instant earliest, Instant latest, const Look& look)
    : from(earliest), until(latest), counts_from(look.is_sparse() ? LatestOf(latest, look.asked) : latest) {}

// Each look tells a little better when the sign was made.
void StorageSign::NoteMissed(Instant latest, const Look& look) {
  until = std::min(until, latest);
  if (missed) return;
  if (look.is_sparse()) counts_from = LatestOf(counts_from, look.asked);
  missed = look.is_sparse() || look.asked - counts_from >= look.others_heard;
}

ArraySide::Held& ArraySide::AddHolding(const VolumeId& volume) {
  const auto at = std::lower_bound(holdings.begin(), holdings.end(), volume, HeldBefore);
  if (at != holdings.end() && at->volume == volume) return *at;
  const auto index = at - holdings.begin();
  // To the entry, as there are a hundred thousand of these vectors and they seldom grow.
  holdings.reserve(holdings.size() + 1);
  auto& held = *holdings.emplace(holdings.begin() + index);
  held.volume = volume;
  return held;
}

const ArraySide::Held* ArraySide::FindHolding(const VolumeId& volume) const {
  const auto at = std::lower_bound(holdings.begin(), holdings.end(), volume, HeldBefore);
  return at != holdings.end() && at->volume == volume ? &*at : nullptr;
}

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
  return std::any_of(arrays.begin(), arrays.end(), [](const auto& side) { return !side.holdings.empty(); });
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
    for (const auto& holding : side.holdings) held[side.array->id].insert(holding.volume);
  return held;
}

}  // namespace lunkeeper::fencing
