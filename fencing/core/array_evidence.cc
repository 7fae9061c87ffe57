// What Evidence takes from looks at the arrays. Ten arrays tell of ten thousand nodes twice a second, so the
// handlers walk two sorted sequences side by side. evidence.cc says how silence is counted.
//
// A part of an array may not answer, such as one of several tgtds. Then the look says of some grants only
// that they are there. Heartbeats are all in one place, and a look without them is a failed one.

#include "fencing/core/array_evidence.h"

#include <algorithm>
#include <utility>

#include "fencing/core/evidence.h"

namespace lunkeeper::fencing {
namespace {

bool HeldBefore(const ArraySide::Held& held, const VolumeId& volume) { return held.volume < volume; }

// An array that was away may be on another host by now. Nodes come back to it one by one: each is met there
// again with its first heartbeat. The silence of a dead one counts from the array's return on.
void ForgetSigns(IndexedMap<NodeId, NodeEvidence>& nodes, const ArrayChannel& channel) {
  for (auto& [id, node] : nodes) {
    for (auto& side : node.arrays)
      if (side.array == &channel) side.ForgetSigns();
  }
}

}  // namespace

void LatestSigns::NoteLife(const NodeId& node, Instant from, Instant until, Span gap) {
  if (!latest_at || from - *latest_at >= gap) since = until;
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

void ArraySide::ForgetSigns() {
  heartbeat.reset();
  if (use_) use_->io.reset();
}

ArraySide::Use& ArraySide::EnsureUse() {
  if (!use_) use_ = std::make_unique<Use>();
  return *use_;
}

ArraySide::Held& ArraySide::AddHolding(const VolumeId& volume) {
  auto& holdings = EnsureUse().holdings;
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
  const auto& holdings = use().holdings;
  const auto at = std::lower_bound(holdings.begin(), holdings.end(), volume, HeldBefore);
  return at != holdings.end() && at->volume == volume ? &*at : nullptr;
}

void ArraySide::ForgetHoldings(uint64_t last_view) {
  if (use_) std::erase_if(use_->holdings, [&](const auto& held) { return held.view != last_view; });
}

std::optional<Instant> ArraySide::UncountedAt() const {
  std::optional<Instant> latest;
  for (const auto& held : use().holdings) latest = std::max(latest, held.uncounted_at);
  return latest;
}

ArrayChannel& Evidence::ChannelOf(const ArrayId& array) {
  const auto [at, is_new] = arrays_.try_emplace(array, ArrayChannel{array});
  if (is_new) at->second.number = arrays_met_++;
  return at->second;
}

// A look that comes late says nothing about the time in which it was on its way, so that silence ends when
// it was asked for. A node that a late look shows is alive as of then, however long ago that is.
void Evidence::NoteEvent(const ArrayView& view, Instant now) {
  auto& channel = ChannelOf(view.array);
  const auto asked = view.signs_asked.value_or(view.asked);
  if (channel.looked_at && asked < *channel.looked_at) return;  // overtaken
  // It was only slow if the look was asked for before it counted as lost.
  if (!channel.up && !(view.asked < channel.lost_at)) {
    channel.since = now;
    ForgetSigns(nodes_, channel);
  }
  channel.up = true;
  const auto since_last = channel.looked_at && channel.since < now ? asked - *channel.looked_at : Span();
  const Look look{asked, since_last, settings_.look, settings_.others_heard};
  NoteHoldings(view, now, channel, look);
  NoteLanded(view, now, channel, look);
  channel.looked_at = asked, channel.viewed_at = now, channel.took = now - view.asked;
}

void Evidence::NoteLanded(const ArrayView& view, Instant now, ArrayChannel& channel, const Look& look) {
  // Ten arrays tell of ten thousand nodes twice a second: where both are in order, nothing is looked up.
  auto at = nodes_.begin();
  for (const auto& landed : view.landed) {
    if (at == nodes_.end() || at->first != landed.node)
      EnsureNode(landed.node, now), at = nodes_.find(landed.node);
    auto& node = at++->second;
    auto& side = node.SideOf(channel);
    const auto from = look.asked - landed.age, until = now - landed.age;
    channel.heard.NoteLife(landed.node, from, until, look.gap());
    channel.heartbeats.NoteLife(landed.node, from, until, look.gap());
    if (side.heartbeat && landed.sequence == side.heartbeat_sequence) {
      side.heartbeat->NoteMissed(until, look);
      continue;
    }
    if (!side.heartbeat || from - side.heartbeat->until >= settings_.silence)  // seldom, and the rest is slow
      NoteReturn(node, from, until, settings_.silence + look.late());
    side.heartbeat.emplace(from, until, look);
    side.heartbeat_sequence = landed.sequence;
  }
}

void Evidence::NoteHoldings(const ArrayView& view, Instant now, ArrayChannel& channel, const Look& look) {
  ++channel.views;
  channel.uncounted = 0;
  channel.unseen = view.unseen;
  if (view.unseen.empty()) channel.unseen_since.reset();
  if (!view.unseen.empty() && !channel.unseen_since) channel.unseen_since = now;
  size_t seen = 0;
  // What is new in a view after a long gap may have been granted at any time in it.
  const bool looks = channel.viewed_at && now - *channel.viewed_at < settings_.one_outage;
  for (const auto& holding : view.holdings) {
    auto& side = EnsureNode(holding.node, now).SideOf(channel);
    auto& held = side.AddHolding(holding.volume);
    if (held.view == 0) ++channel.holdings;
    if (held.view == 0) held.counted_at = look.asked - look.since_last;
    if (held.view == 0 || held.generation != holding.generation)
      held.since = look.asked - look.since_last, held.granted_then = looks;
    held.generation = holding.generation;
    if (held.view != channel.views) ++seen;
    NoteCommands(holding, now, channel, look, side, held);
    held.view = channel.views;
  }
  if (seen == channel.holdings) return;  // none has ended
  channel.holdings = seen;
  for (auto& [id, node] : nodes_)
    for (auto& side : node.arrays)
      if (side.array == &channel) side.ForgetHoldings(channel.views);
}

// A count that nobody could read is no sign of life, and none of its absence. What it has risen by when it is
// read again was done at some time since it was read last.
void Evidence::NoteCommands(const Holding& holding, Instant now, ArrayChannel& channel, const Look& look,
                            ArraySide& side, ArraySide::Held& held) {
  if (!holding.counted) {
    held.uncounted_at = now;
    ++channel.uncounted;
    return;
  }
  auto& io = side.EnsureUse().io;
  // A counter that fell has begun anew: nobody knows of any I/O.
  if (holding.commands > held.commands) {
    auto from = held.was_counted() ? look.asked - look.since_last : held.counted_at;
    if (io && io->until == now) from = std::max(from, io->from);
    io.emplace(from, now, look);
    // At the first view after an outage the command may be long ago.
    if (channel.since < now && held.was_counted())
      channel.heard.NoteLife(holding.node, look.asked, now, look.gap());
  } else if (io && io->until < now) {  // and it did no other
    io->NoteMissed(io->until, look);
  }
  held.commands = holding.commands;
  held.counted_at = look.asked;
}

void Evidence::NoteEvent(const PortalAnswered& answer, Instant now) {
  const auto found = arrays_.find(answer.array);
  if (found == arrays_.end()) return;
  auto& array = found->second;
  if (array.portal_probes > 1) array.portals_back_at = now;
  array.portal_probes = 0;
  array.portal_answered_at = now;
}

std::vector<ProbePortals> Evidence::TakePortalProbesDue(Instant now) {
  std::vector<ProbePortals> due;
  for (auto& [id, array] : arrays_) {
    const NodeId user = array.heard.OnlyNode(settings_.one_outage);
    if (user.empty() || !array.up) continue;
    const bool silent = now - *array.heard.latest_at >= settings_.storage_late;
    const auto period = silent ? settings_.probe_period : settings_.probe_well;
    if (array.portals_probed_at && now - *array.portals_probed_at < period) continue;
    array.portals_probed_at = now;
    ++array.portal_probes;
    due.push_back({id, user});
  }
  return due;
}

void Evidence::NoteEvent(const ArrayLost& lost, Instant now) {
  auto& channel = ChannelOf(lost.array);
  if (channel.up) channel.up = false, channel.lost_at = now;
}

void Evidence::NoteLateArrays(Instant now) {
  for (auto& [array, channel] : arrays_)
    if (channel.up && now - *channel.viewed_at > std::max(settings_.array_lost, 2 * channel.took))
      NoteEvent(ArrayLost{array}, now);
}

void Evidence::NoteEvent(const ArrayGone& gone) {
  for (auto& [id, node] : nodes_)
    std::erase_if(node.arrays, [&](const auto& side) { return side.array->id == gone.array; });
  arrays_.erase(gone.array);
}

}  // namespace lunkeeper::fencing
