#include "fencing/core/mount_deaths.h"

#include <algorithm>

namespace lunkeeper::fencing {
namespace {

// Between a grant and the look at the array that shows it, and between two heartbeats: a node whose last one
// is older than its grant by more was dead before.
constexpr Span kLooks = 2_s;

// Its kernel ended without a word, and this observer saw when: a stream that was closed is a shutdown.
bool DiedSuddenly(const Signals& signals) {
  return signals.met && signals.storage == Storage::kSilent &&
         (signals.network == Network::kSilent || signals.network == Network::kUnheard);
}

// Another node fell silent at that time, so what killed them was nothing that one of them had mounted. A node
// that is charged to the same volume already is no other one. Nor is one that was dead before this one took
// the volume: it may be the one that the volume was taken from, and a failover takes less time than the nodes
// of one outage may die apart. It takes more than kLooks, so no node of an outage is left out for that.
bool IsPartOfOutage(const State& state, const NodeId& node, const ChargedNodes& charged, Instant granted) {
  const auto died = LastSignOf(state.evidence.nodes().at(node));
  return std::any_of(state.evidence.nodes().begin(), state.evidence.nodes().end(), [&](const auto& entry) {
    const auto& [id, other] = entry;
    const bool same = id == node || std::find(charged.begin(), charged.end(), id) != charged.end();
    if (same || !other.heard || !state.IsCurrent(id)) return false;
    // It need not count as silent yet: all nodes of an outage are judged within a second.
    const auto last = LastSignOf(other);
    const auto apart = last - died;
    return std::max(apart, -apart) < state.settings.one_outage && !other.closed && last + kLooks >= granted &&
           state.now - last >= state.settings.others_heard;
  });
}

void StoreCharge(State& state, const VolumeId& volume, std::vector<NodeId> nodes) {
  state.outbox.CallOnce(CallKey::ForChargeOf(volume), ChargeVolume{volume, std::move(nodes)}, state.now);
}

// The node that has had the volume for long enough by this observer's own eyes, and is well.
bool IsSurvived(const State& state, const VolumeId& volume) {
  for (const auto& [node, known] : state.evidence.nodes())
    for (const auto& side : known.arrays) {
      const auto* held = side.FindHolding(volume);
      if (held && state.now - held->since >= state.settings.mount_death &&
          state.evidence.SignalsOf(node, known, state.now).network == Network::kArrives)
        return true;
    }
  return false;
}

}  // namespace

bool ChargeDeath(State& state, const NodeId& node, const VolumesByArray& volumes) {
  const auto known = state.evidence.nodes().find(node);
  if (state.settings.dry_run || known == state.evidence.nodes().end() ||
      !DiedSuddenly(state.evidence.SignalsOf(node, known->second, state.now)))
    return false;
  bool charging = false;
  for (const auto& [array, some] : volumes)
    for (const auto& volume : some) {
      const auto granted = known->second.GrantedAt(array, volume);
      const auto lived = LastSignOf(known->second) - granted.value_or(Instant());
      if (!granted || lived >= state.settings.mount_death || lived < -kLooks) continue;
      auto nodes = state.cluster.ChargedTo(volume);
      if (std::find(nodes.begin(), nodes.end(), node) != nodes.end() || IsPartOfOutage(state, node, nodes, *granted))
        continue;
      nodes.push_back(node);
      StoreCharge(state, volume, std::move(nodes));
      charging = true;
    }
  return charging;
}

void ClearSurvivedCharges(State& state) {
  for (const auto& [volume, nodes] : state.cluster.charged())
    if (!state.cluster.IsHeldBack(volume) && IsSurvived(state, volume)) StoreCharge(state, volume, {});
}

std::string DescribeHeldBack(const Cluster& cluster, const VolumeId& volume) {
  std::string nodes;
  for (const auto& node : cluster.ChargedTo(volume)) nodes += (nodes.empty() ? "" : ", ") + node.value();
  return "volume " + volume.value() + " is not moved any more: nodes died soon after they mounted it, one " +
         "after the other (" + nodes + "); check its file system, then `lunkeeper allow " + volume.value() +
         "`";
}

void ReportHeldBack(State& state) {
  std::map<NodeId, std::string> texts;
  for (const auto& [volume, nodes] : state.cluster.charged()) {
    if (!state.cluster.IsHeldBack(volume)) continue;
    auto& text = texts[nodes.back()];
    text += (text.empty() ? "" : "; ") + DescribeHeldBack(state.cluster, volume);
  }
  std::erase_if(state.said, [&](const auto& entry) {
    return entry.first.first == ReportKind::kHeldBack && !texts.contains(entry.first.second);
  });
  for (auto& [node, text] : texts)
    state.ReportOnce({.kind = ReportKind::kHeldBack, .node = node, .text = std::move(text)});
}

}  // namespace lunkeeper::fencing
