// How Evidence computes them from what it has noted, at each tick and for one node after the other: first the
// network, then the arrays, then whether both fell silent together, then the kernel and the kubelet. Nothing
// is stored. evidence.cc says how silence is counted. Last comes whether the answers of others, who are asked
// before a fence, still count.

#include "fencing/core/signals.h"

#include <algorithm>

#include "fencing/core/evidence.h"

namespace lunkeeper::fencing {
namespace {

constexpr Span kForever = Span::max();

}  // namespace

Signals Evidence::SignalsOf(const NodeId& id, Instant now) const {
  if (const auto found = nodes_.find(id); found != nodes_.end()) return SignalsOf(id, found->second, now);
  NodeEvidence nothing;
  if (const auto found = kubelets_.find(NameOf(id)); found != kubelets_.end())
    nothing.kubelet = &found->second;
  return SignalsOf(id, nothing, now);
}

Signals Evidence::SignalsOf(const NodeId& id, const NodeEvidence& node, Instant now) const {
  Signals signals;
  signals.silent_for = now - LatestOf(window_, node.heartbeat_at, node.met_at);
  if (node.heard) {
    signals.network = node.closed                              ? Network::kClosed
                      : signals.silent_for < settings_.silence ? Network::kArrives
                                                               : Network::kSilent;
  }
  const auto here_since = LatestOf(window_, node.met_at, node.here_since);
  signals.here_for = now - here_since;
  if (node.hung_since) signals.hung_for = now - LatestOf(here_since, node.hung_since);
  LookAtStorage(id, node, now, signals);
  LookAtSilence(id, node, now, signals);
  LookAtKernel(node, now, signals);
  LookAtKubelet(id, node, now, signals);
  return signals;
}

// As of the last look, like all that is known of an array.
bool Evidence::IsRecent(const std::optional<Instant>& sign, const ArrayChannel& array) const {
  return sign && array.looked_at && *array.looked_at - *sign < settings_.others_heard;
}

bool Evidence::PortalAnswers(const ArrayChannel& array, Instant now) const {
  const auto& answered = array.portal_answered_at;
  const bool settled = !array.portals_back_at || now - *array.portals_back_at >= settings_.slow_silence;
  return settled && answered && *answered - *array.heard.latest_at >= settings_.storage_late &&
         now - *answered < settings_.silence;
}

bool Evidence::PortalsFellSilent(const ArrayChannel& array, Instant now) const {
  const auto& answered = array.portal_answered_at;
  return answered && *array.heard.latest_at - *answered < settings_.probe_fresh && !PortalAnswers(array, now);
}

bool Evidence::OthersReach(const ArraySide& side, const NodeId& node, Instant now) const {
  const auto& array = *side.array;
  if (array.heard.OnlyNode(settings_.one_outage) == node) return PortalAnswers(array, now);
  return IsRecent((side.has_heartbeats() ? array.heartbeats : array.heard).OthersThan(node), array);
}

bool Evidence::CanTellOf(const NodeId& node, const ArraySide& side, Instant now) const {
  const auto& array = *side.array;
  const auto others = array.heard.OthersThan(node), landed = array.heartbeats.OthersThan(node);
  if (!side.heartbeat && SeenFor(side, now) < settings_.silence) return false;
  // Where others have used it, and do no more, only a portal that answers shows that it is not away.
  const bool alone = array.heard.OnlyNode(settings_.one_outage) == node;
  if (alone && PortalAnswers(array, now)) return true;
  if (side.has_heartbeats() && landed && !IsRecent(landed, array)) return false;
  if (alone && PortalsFellSilent(array, now)) return false;
  return !others || IsRecent(others, array);
}

Span Evidence::SeenFor(const ArraySide& side, Instant now) const {
  const auto uncounted = side.UncountedAt();
  return uncounted ? side.array->SilenceSince(std::nullopt, *uncounted, now, settings_.look) : kForever;
}

void Evidence::LookAtStorage(const NodeId& id, const NodeEvidence& node, Instant now,
                             Signals& signals) const {
  signals.storage_silent_for = signals.io_quiet_for = kForever;
  // It may do I/O at an array that cannot say so.
  size_t untold = static_cast<size_t>(std::ranges::count_if(node.arrays, &ArraySide::has_grants));
  for (const auto& side : node.arrays) {
    if (!side.array->up) continue;
    const auto start = LatestOf(window_, node.met_at, side.array->since, side.array->heard.since);
    const auto quiet = side.array->SilenceSince(side.use().io, start, now, settings_.look);
    const auto seen_for = SeenFor(side, now);
    signals.io_seen_for = std::min(signals.io_seen_for, seen_for);
    // Without a heartbeat LUN only I/O shows life, so an idle node is as quiet as a dead one there.
    const auto heartbeat_silent_for =
        side.heartbeat
            ? side.array->SilenceSince(side.heartbeat, LatestOf(start, side.array->heartbeats.since), now,
                                       settings_.look)
            : quiet;
    if (std::min(quiet, heartbeat_silent_for) >= settings_.silence && !CanTellOf(id, side, now)) continue;
    untold -= side.has_grants() ? 1 : 0;
    signals.io_quiet_for = std::min(signals.io_quiet_for, quiet);
    signals.storage_silent_for = std::min({signals.storage_silent_for, quiet, heartbeat_silent_for});
    // A moment's failure is a reconnect.
    const bool hangs = std::ranges::any_of(side.use().holdings, [&](const auto& held) {
      const auto since = node.hanging_since.find(held.volume);
      return since != node.hanging_since.end() && now - LatestOf(start, since->second) >= settings_.path_lost;
    });
    // Since the array is back none of its heartbeats has landed there: its session may not be there yet. It
    // is not awaited for ever, or its pods would hang for as long.
    const bool awaited =
        !side.heartbeat && side.heartbeat_sequence != 0 && now - start < settings_.never_met_silence;
    // What hangs may hang there, for every node.
    const bool all_silent = std::min({quiet, heartbeat_silent_for, seen_for}) >= settings_.silence;
    if (hangs && !awaited && all_silent && OthersReach(side, id, now)) signals.lost.insert(side.array->id);
  }
  signals.io_quiet_for = untold > 0 ? Span() : std::min(signals.io_quiet_for, signals.io_seen_for);
  // No array that is up knows the node: storage is unknown, which is not silence.
  if (signals.storage_silent_for == kForever) return;
  signals.storage = signals.storage_silent_for < settings_.silence ? Storage::kAlive : Storage::kSilent;
}

// A node that dies takes all its channels with it. Channels that fell silent at different times are different
// faults, and a kubelet that renewed its lease meanwhile did not die with them.
void Evidence::LookAtSilence(const NodeId& id, const NodeEvidence& node, Instant now,
                             Signals& signals) const {
  // Looks that are far apart, or slow, tell only roughly when it was.
  std::optional<Instant> from, until;
  for (const auto& side : node.arrays) {
    signals.met |= side.heartbeat && side.heartbeat->until >= node.met_at;
    if (!side.array->up || !CanTellOf(id, side, now)) continue;
    for (const auto* sign : {&side.heartbeat, &side.use().io}) {
      if (!*sign) continue;
      from = std::max(from, std::optional((*sign)->from));
      until = std::max(until, std::optional((*sign)->until));
    }
  }
  signals.met |= node.heard;
  if (!from) return;
  const auto network_at = node.heard ? *node.heartbeat_at : *until;
  const auto latest = std::max(*from, network_at);
  signals.together = std::max(*from - network_at, network_at - *until) <= settings_.together;
  signals.renewed_since = node.kubelet && (node.kubelet->node_id.empty() || node.kubelet->node_id == id) &&
                          node.kubelet->renewed_by &&
                          *node.kubelet->renewed_by - latest >= settings_.lease_delay;
}

void Evidence::LookAtKernel(const NodeEvidence& node, Instant now, Signals& signals) const {
  if (!node.calibrated) return;
  if (const auto heard_at = std::max(node.probe_answered_at, node.heartbeat_at);
      heard_at && now - *heard_at < settings_.silence) {
    signals.kernel = Kernel::kAnswers;
  } else if (node.unanswered >= settings_.probes_unanswered && node.probe_answered_at &&
             LastSignOf(node) - *node.probe_answered_at < settings_.probe_fresh) {
    signals.kernel_gone = true;
    if (!node.no_route_at || witnesses_.HaveAnswered(*node.no_route_at, now, settings_.silence))
      signals.kernel = Kernel::kUnanswered;
  }
}

void Evidence::LookAtKubelet(const NodeId& id, const NodeEvidence& node, Instant now,
                             Signals& signals) const {
  if (!ApiUp(now)) return;
  // Neither a deleted Node nor another machine of the same name speaks for this one.
  if (!node.kubelet || (!node.kubelet->node_id.empty() && node.kubelet->node_id != id)) {
    signals.kubelet = Kubelet::kNotReady;
    signals.not_ready_for = now - LatestOf(window_, node.met_at, api_since_);
    return;
  }
  const auto& side = *node.kubelet;
  const auto start = LatestOf(window_, api_since_);
  const auto stale_for = now - LatestOf(start, side.lease_at) - settings_.kubelet_stale;
  const auto not_ready_for = side.ready ? Span() : now - LatestOf(start, side.not_ready_since);
  signals.not_ready_for = std::max({stale_for, not_ready_for, Span()});
  // As that counts for nothing in the kubelets' turn, the time in which it lasts begins after it.
  signals.unready_for =
      side.ready ? Span() : std::max(Span(), now - LatestOf(start, side.not_ready_since, kubelets_turn_));
  if (side.ready && stale_for < Span()) {
    signals.kubelet = Kubelet::kReady;
  } else if (now >= kubelets_turn_) {
    signals.kubelet = Kubelet::kNotReady;
    signals.late_lease = side.ready;
  }
}

bool Evidence::IsClean(const NodeId& id, const VolumeSet& volumes, const ArrayId& array, Generation known,
                       Instant now) const {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || SignalsOf(id, now).network != Network::kArrives) return false;
  const auto& heartbeat = found->second.heartbeat;
  const auto knows = heartbeat.known.find(array);
  // It may know of a later one, of which an array restored from an older copy knows no more.
  if (known != 0 && (knows == heartbeat.known.end() || knows->second < known)) return false;
  return std::none_of(volumes.begin(), volumes.end(),
                      [&](const auto& volume) { return heartbeat.present.contains(volume); });
}

int Evidence::CountArriving(Instant now) const {
  return static_cast<int>(std::count_if(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    const auto* kubelet = entry.second.kubelet;
    return kubelet && kubelet->node_id == entry.first && Arrives(entry.second, now);
  }));
}

bool Evidence::IsUnseen(const ArrayId& array, Instant now) const {
  const auto found = arrays_.find(array);
  return found != arrays_.end() && !found->second.up &&
         now - LatestOf(window_, found->second.lost_at) >= settings_.observer_lost;
}

std::string Evidence::WhatIsUnseen(const ArrayId& array, Instant now) const {
  const auto found = arrays_.find(array);
  if (found == arrays_.end() || !found->second.up || !found->second.unseen_since) return {};
  const bool lasts = now - LatestOf(window_, found->second.unseen_since) >= settings_.observer_lost;
  return lasts ? found->second.unseen : "";
}

size_t Evidence::CountUnseenGrants() const {
  size_t grants = 0;
  for (const auto& [id, channel] : arrays_)
    if (channel.up) grants += channel.uncounted;
  return grants;
}

bool Evidence::IsBlind(Instant now) const {
  return !arrays_.empty() && std::all_of(arrays_.begin(), arrays_.end(),
                                         [&](const auto& each) { return IsUnseen(each.first, now); });
}

// The two are asked at once, and each answer counts until the other one may be there. Otherwise two slow ones
// would be asked in turn for ever.
const ReplicaVotes* Evidence::VotesOn(const NodeId& id, Instant since, Instant now) const {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || !(found->second.votes_asked_at >= since)) return nullptr;
  const auto& node = found->second;
  const auto read_took = node.kubelet && node.kubelet->read_asked_at >= since
                             ? *node.kubelet->read_at - *node.kubelet->read_asked_at
                             : Span();
  return now - *node.votes_at < std::max(settings_.votes_last, read_took) ? &*node.votes : nullptr;
}

bool Evidence::IsKubeletRead(const NodeId& id, Instant since, Instant now) const {
  const auto known = kubelets_.find(NameOf(id));
  if (known == kubelets_.end() || (!known->second.node_id.empty() && known->second.node_id != id))
    return true;
  if (!(known->second.read_asked_at >= since)) return false;
  const auto node = nodes_.find(id);
  const auto votes_took = node != nodes_.end() && node->second.votes_asked_at >= since
                              ? *node->second.votes_at - *node->second.votes_asked_at
                              : Span();
  return now - *known->second.read_at < std::max(settings_.kubelet_read, votes_took);
}

}  // namespace lunkeeper::fencing
