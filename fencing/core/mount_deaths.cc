#include "fencing/core/mount_deaths.h"

#include <algorithm>

namespace lunkeeper::fencing {
namespace {

// Between a grant and the look at the array that shows it, and between two heartbeats: a node whose last one
// is older than its grant by more was dead before.
constexpr Span kLooks = 2_s;
constexpr Span kStoreAgain = 5_s;  // a charge that could not be stored

// Its kernel ended without a word, and this observer saw when: a stream that was closed is a shutdown.
bool DiedSuddenly(const Signals& signals) {
  return signals.met && signals.storage == Storage::kSilent &&
         (signals.network == Network::kSilent || signals.network == Network::kNeverArrived);
}

// Or another instance of its machine was: one that is made anew each time it dies is still one node.
bool IsChargedWith(const ChargedNodes& charged, const NodeId& node) {
  return std::any_of(charged.begin(), charged.end(),
                     [&](const NodeId& each) { return NameOf(each) == NameOf(node); });
}

// Another node fell silent at that time, so what killed them was nothing that one of them had mounted. A node
// that is charged to the same volume already is no other one. Nor is one that was dead before this one took
// the volume: it may be the one that the volume was taken from, and a failover takes less time than the nodes
// of one outage may die apart. It takes more than kLooks, so no node of an outage is left out for that.
bool IsPartOfOutage(const State& state, const NodeId& node, const ChargedNodes& charged, Instant granted) {
  const auto died = LastSignOf(state.evidence.nodes().at(node));
  return std::any_of(state.evidence.nodes().begin(), state.evidence.nodes().end(), [&](const auto& entry) {
    const auto& [id, other] = entry;
    const bool same = NameOf(id) == NameOf(node) || IsChargedWith(charged, id);
    if (same || !other.heard || !state.IsCurrent(id)) return false;
    // It need not count as silent yet: all nodes of an outage are classified within a second.
    const auto last = LastSignOf(other);
    const auto apart = last - died;
    return std::max(apart, -apart) < state.settings.one_outage && !other.closed && last + kLooks >= granted &&
           state.now - last >= state.settings.others_heard;
  });
}

// No node mounts it, so it cannot be what a kernel died of.
bool IsRaw(const State& state, const NodeId& node, const VolumeId& volume) {
  const auto pods = state.cluster.PodsOn(NameOf(node));
  return std::any_of(pods.begin(), pods.end(), [&](const Pod* pod) { return pod->raw.contains(volume); });
}

void StoreCharge(State& state, const VolumeId& volume, std::vector<NodeId> nodes) {
  state.outbox.CallOnce(CallKey::ForChargeOf(volume), ChargeVolume{volume, std::move(nodes)}, state.now);
}

bool Arrives(const State& state, const NodeEvidence& known) {
  return state.evidence.Arrives(known, state.now);
}

const ArraySide::Held* FindHolding(const NodeEvidence& node, const VolumeId& volume) {
  for (const auto& side : node.arrays)
    if (const auto* held = side.FindHolding(volume)) return held;
  return nullptr;
}

bool IsPresent(const NodeEvidence& node, const VolumeId& volume) {
  return node.heartbeat.present.contains(volume);
}

// The one that had a device of the volume has given it back, of its own will, and lives. Forgets it if it is
// not well.
bool IsGivenBack(const State& state, const VolumeId& volume, std::optional<NodeId>& user) {
  if (!user) return false;
  const auto known = state.evidence.nodes().find(*user);
  if (known == state.evidence.nodes().end() || !Arrives(state, known->second) ||
      state.cluster.FindFence(*user)) {
    user.reset();
    return false;
  }
  return !FindHolding(known->second, volume) && !IsPresent(known->second, volume);
}

struct Holders {
  bool any = false;
  // How long one of them has been well with the volume, by this observer's own eyes and since the last death.
  // A grant that outlived a reboot shows nothing of the time before.
  Span lived;
};

// Notes who uses it and is well.
Holders LookAtHolders(const State& state, const VolumeId& volume, ChargeSide& charge) {
  Holders holders;
  for (const auto& [id, node] : state.evidence.nodes()) {
    const auto* held = FindHolding(node, volume);
    if (!held) continue;
    holders.any = true;
    if (!Arrives(state, node)) continue;
    holders.lived =
        std::max(holders.lived, state.now - LatestOf(held->since, charge.since, node.outage_until));
    if (IsPresent(node, volume) && !state.cluster.FindFence(id)) charge.user = id;
  }
  return holders;
}

void NoteCharged(State& state, const VolumeId& volume, ChargedNodes nodes) {
  if (nodes.empty()) {
    state.charges.erase(volume);
  } else if (nodes != state.cluster.ChargedTo(volume)) {
    state.charges[volume] = {.since = state.now};
  }
  state.cluster.StoreCharge(volume, std::move(nodes));
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
      if (IsRaw(state, node, volume) || IsChargedWith(nodes, node) ||
          IsPartOfOutage(state, node, nodes, *granted))
        continue;
      nodes.push_back(node);
      StoreCharge(state, volume, std::move(nodes));
      charging = true;
    }
  return charging;
}

// The watch may bring what this leader stored before the last death, and that is no news.
void NoteChargeSeen(State& state, const VolumeCharged& seen) {
  const auto& known = state.cluster.ChargedTo(seen.volume);
  const bool older = !seen.nodes.empty() && seen.nodes.size() < known.size() &&
                     std::equal(seen.nodes.begin(), seen.nodes.end(), known.begin());
  if (older) return;
  if (const auto charge = state.charges.find(seen.volume); charge != state.charges.end())
    charge->second.store_at.reset(), charge->second.unstorable = false;
  NoteCharged(state, seen.volume, seen.nodes);
}

// A person may have allowed the volume while the call was under way: then that is what the last death adds
// to. Where there is no PersistentVolume, nothing is stored that would have to go.
void NoteChargeAnswer(State& state, const ChargeVolume& call, Outcome outcome) {
  const bool is_over = call.nodes.empty() && outcome == Outcome::kGone;
  if (outcome == Outcome::kOk || is_over) {
    NoteCharged(state, call.volume, call.nodes);
    if (!call.nodes.empty()) state.charges[call.volume].store_at.reset();
    return;
  }
  if (call.nodes.empty()) return;
  auto nodes = state.cluster.ChargedTo(call.volume);
  if (!IsChargedWith(nodes, call.nodes.back())) nodes.push_back(call.nodes.back());
  NoteCharged(state, call.volume, std::move(nodes));
  auto& charge = state.charges[call.volume];
  charge.unstorable = outcome == Outcome::kGone;
  charge.store_at = charge.unstorable ? std::nullopt : std::make_optional(state.now + kStoreAgain);
}

// Over a copy: some end here.
void TendCharges(State& state) {
  const auto charged = state.cluster.charged();
  for (const auto& [volume, nodes] : charged) {
    auto& charge = state.charges[volume];
    const bool held_back = state.cluster.IsHeldBack(volume);
    const auto enough = held_back ? state.settings.mount_trusted : state.settings.mount_death;
    const bool given_back = IsGivenBack(state, volume, charge.user);
    const auto holders = LookAtHolders(state, volume, charge);
    if (holders.lived >= enough || (given_back && !held_back)) {
      StoreCharge(state, volume, {});
    } else if (charge.store_at && state.now >= *charge.store_at) {
      StoreCharge(state, volume, nodes);
    } else if (charge.unstorable && !holders.any &&
               state.now - charge.since >= state.settings.mount_trusted) {
      NoteCharged(state, volume, {});  // a volume that was deleted: no watch will tell
    }
  }
}

std::string DescribeHeldBack(const State& state, const VolumeId& volume) {
  std::string nodes;
  for (const auto& node : state.cluster.ChargedTo(volume))
    nodes += (nodes.empty() ? "" : ", ") + node.value();
  const auto charge = state.charges.find(volume);
  std::string stored;
  if (charge != state.charges.end() && charge->second.store_at)
    stored = " (not stored yet: only this leader knows)";
  if (charge != state.charges.end() && charge->second.unstorable)
    stored = " (it has no PersistentVolume to store that on: only this leader knows)";
  return "volume " + volume.value() + " is not moved any more: nodes died soon after they mounted it, one " +
         "after the other (" + nodes + "); check its file system, then `lunkeeper allow " + volume.value() +
         "`" + stored;
}

void ReportHeldBack(State& state) {
  std::map<NodeId, std::string> texts;
  for (const auto& [volume, nodes] : state.cluster.charged()) {
    if (!state.cluster.IsHeldBack(volume)) continue;
    auto& text = texts[nodes.back()];
    text += (text.empty() ? "" : "; ") + DescribeHeldBack(state, volume);
  }
  std::erase_if(state.said, [&](const auto& entry) {
    return entry.first.first == ReportKind::kHeldBack && !texts.contains(entry.first.second);
  });
  for (auto& [node, text] : texts)
    state.ReportOnce({.kind = ReportKind::kHeldBack, .node = node, .text = std::move(text)});
}

}  // namespace lunkeeper::fencing
