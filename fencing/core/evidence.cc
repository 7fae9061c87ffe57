// Every time in here is of this observer's clock, and every silence counts from the latest of four
// beginnings: the last sign of life, the moment this observer met the node, the moment the channel came up,
// and window_, which begins anew after each stall of the observer itself. So a silence is never longer than
// the time in which a sign of life would have been seen. On an array it ends with the last look.
//
//   On a heartbeat ───► NodeEvidence of its node
//   on a poll ────────► ArraySide of each node that holds something there (array_evidence.cc)
//   on a watch event ─► KubeletSide of the machine, by name, shared by all its instances
//   at each tick ─────► SignalsOf(node): the columns of the evidence table, computed and not stored
//
// Signals are computed once a tick for each node.

#include "fencing/core/evidence.h"

#include <algorithm>
#include <utility>

#include "fencing/core/eligibility.h"
#include "fencing/core/instances.h"

namespace lunkeeper::fencing {
namespace {

constexpr size_t kMostOtherBoots = 16;
constexpr size_t kMostInstances = 16;    // of one machine, that no array shows
constexpr size_t kProbesOfTheWell = 16;  // at least, in one tick
constexpr size_t kWitnesses = 4;         // two have to answer, and one may be on this observer's own machine

// A heartbeat may be overtaken, also by the first one of the next boot. Which of two boots came first cannot
// be known when nothing arrived before them, so none is ever ruled out: the living one is the one that goes
// on.
bool IsNews(const NodeEvidence& node, const Heartbeat& heartbeat) {
  if (heartbeat.boot == node.heartbeat.boot) return heartbeat.sequence > node.heartbeat.sequence;
  const auto known = node.other_boots.find(heartbeat.boot);
  return known == node.other_boots.end() || heartbeat.sequence > known->second;
}

// A renewal that comes late, by a watch that lags or a read, may have been made before its node died. It was
// made as long after the one before as the machine's clock says; and that one was made before it was seen. A
// clock that was set back in between says nothing.
Instant RenewedBy(const KubeletSide& before, const KubeletLease& lease, Instant now) {
  if (!before.lease_at || !before.renewed || !lease.renewed || *lease.renewed <= *before.renewed) return now;
  return std::min(now, *before.lease_at + (*lease.renewed - *before.renewed));
}

}  // namespace

void Evidence::Observe(Instant now) {
  if (!last_) api_at_ = now;
  if (!last_ || now - *last_ > settings_.stall) window_ = now;
  last_ = now;
}

NodeEvidence& Evidence::EnsureNode(const NodeId& id, Instant now) {
  auto& node = nodes_[id];
  if (node.met_at) return node;
  node.met_at = now;
  const auto kubelet = kubelets_.find(NameOf(id));
  if (kubelet != kubelets_.end()) node.kubelet = &kubelet->second;
  return node;
}

KubeletSide& Evidence::KubeletOf(const NodeName& name) {
  if (const auto known = kubelets_.find(name); known != kubelets_.end()) return known->second;
  auto& kubelet = kubelets_[name];
  SetKubelet(name, &kubelet);
  return kubelet;
}

void Evidence::SetKubelet(const NodeName& name, const KubeletSide* kubelet) {
  for (auto* instance : InstancesOf(nodes_, name)) instance->second.kubelet = kubelet;
}

void Evidence::NoteEvent(Heartbeat heartbeat, Instant now) {
  if (!nodes_.contains(heartbeat.node)) LimitInstances(NameOf(heartbeat.node));
  auto& node = EnsureNode(heartbeat.node, now);
  if (node.heard && !IsNews(node, heartbeat)) return;
  if (node.heard && heartbeat.boot != node.heartbeat.boot) {
    // A node that boots over and over must not fill the memory; of sixteen boots any may be forgotten.
    if (node.other_boots.size() >= kMostOtherBoots) node.other_boots.erase(node.other_boots.begin());
    node.other_boots[node.heartbeat.boot] = node.heartbeat.sequence;
    node.here_since = now;
  }
  const bool returns = node.heard && now - LatestOf(window_, node.heartbeat_at) >= settings_.silence;
  if (returns) node.outage_until = node.kicks_since = now;
  NoteReturn(node, now, now, settings_.silence);
  // I/O that fails is an outage too: its pods may have crashed of it, and are kicked when it is over.
  if (!heartbeat.failing.empty()) node.outage_until = now;
  if (!Covers(node.heartbeat.failed, heartbeat.failing)) node.kicks_since = now;
  const auto hangs = [&](const VolumeId& volume) {
    return heartbeat.failing.contains(volume) && !heartbeat.failed.contains(volume) &&
           (settings_.move_idle || !heartbeat.idle.contains(volume));
  };
  std::erase_if(node.hanging_since, [&](const auto& entry) { return !hangs(entry.first); });
  for (const auto& volume : heartbeat.failing)
    if (hangs(volume)) node.hanging_since.emplace(volume, now);
  if (heartbeat.kubelet_ok) node.hung_since.reset();
  if (!heartbeat.kubelet_ok && !node.hung_since) node.hung_since = now;
  if (heartbeat.present != node.heartbeat.present) node.present_since = now;
  node.heard = true;
  node.closed = false;
  node.heartbeat_at = now;
  node.unanswered = 0;
  node.no_route_at.reset();
  node.heartbeat = std::move(heartbeat);
}

void Evidence::NoteReturn(NodeEvidence& node, Instant from, Instant until, Span gap) const {
  if (from - LatestOf(window_, LastSignOf(node)) >= gap) node.here_since = until;
}

// A machine gives itself its instance, so it may send heartbeats as any number of them. Instances
// that an array shows are the array's to limit; of the others the longest silent makes room.
void Evidence::LimitInstances(const NodeName& name) {
  std::vector<std::pair<const NodeId, NodeEvidence>*> known;
  for (auto* instance : InstancesOf(nodes_, name))
    if (instance->second.arrays.empty()) known.push_back(instance);
  if (known.size() < kMostInstances) return;
  const auto oldest = std::min_element(known.begin(), known.end(), [](const auto* a, const auto* b) {
    return LastSignOf(a->second) < LastSignOf(b->second);
  });
  nodes_.erase(NodeId((*oldest)->first));
}

std::vector<NodeId> Evidence::ForgetNodes(Instant now, const std::function<bool(const NodeId&)>& needed) {
  std::vector<NodeId> gone;
  for (const auto& [id, node] : nodes_) {
    const bool current = node.kubelet && (node.kubelet->node_id.empty() || node.kubelet->node_id == id);
    if (!current && !node.HasGrants() && now - LastSignOf(node) >= settings_.forget && !needed(id))
      gone.push_back(id);
  }
  for (const auto& id : gone) nodes_.erase(id);
  return gone;
}

void Evidence::NoteEvent(const StreamClosed& closed, Instant now) {
  const auto found = nodes_.find(closed.node);
  if (found == nodes_.end() || !found->second.heard) return;
  // The close itself is the last sign of life.
  found->second.closed = true;
  found->second.heartbeat_at = now;
}

void Evidence::NoteEvent(const ProbeAnswer& result, Instant now) {
  const auto found = nodes_.find(result.node);
  if (found == nodes_.end()) return;  // forgotten meanwhile
  found->second.NoteProbe(result, now);
  if (result.answered) witnesses_.NoteAnswer(NameOf(result.node), now);
  if (result.no_route) witnesses_.NoteNoRoute(now);
}

// A watch that lags brings what was renewed before that which a read brought already. What it brings is never
// older than what it brought before, unless the machine's clock was set back.
void Evidence::NoteEvent(const KubeletLease& lease, Instant now) {
  auto& side = KubeletOf(lease.node);
  const bool read_already = lease.renewed > side.watched && lease.renewed < side.renewed;
  side.watched = lease.renewed;
  if (!read_already) NoteRenewal(side, lease, now);
}

void Evidence::NoteRenewal(KubeletSide& side, const KubeletLease& lease, Instant now) {
  if (!lease.renewal.empty() && lease.renewal == side.renewal) return;  // listed again
  side.renewed_by = RenewedBy(side, lease, now);
  side.renewal = lease.renewal;
  side.renewed = lease.renewed;
  side.lease_at = now;
}

// A lease that the watch has not brought was renewed at some time since the last one that it brought: see
// RenewedBy. A slow answer may be older than what the watch has brought meanwhile.
void Evidence::NoteRead(const ReadKubelet& call, const std::optional<KubeletState>& found, Instant now) {
  const auto known = kubelets_.find(NameOf(call.node));
  if (known == kubelets_.end()) return;
  auto& side = known->second;
  side.read_asked_at = call.asked;
  side.read_at = now;
  if (!found) return;
  if (found->ready) side.ready = true;
  const bool overtaken = call.asked < side.lease_at && found->renewed < side.renewed;
  if (!found->renewal.empty() && !overtaken)
    NoteRenewal(side, KubeletLease{known->first, found->renewal, found->renewed}, now);
}

void Evidence::NoteVotes(const AskReplicas& call, const ReplicaVotes& votes, Instant now) {
  const auto found = nodes_.find(call.node);
  if (found == nodes_.end()) return;  // forgotten meanwhile
  auto& node = found->second;
  node.votes_asked_at = call.asked, node.votes_at = now, node.votes = Shared<ReplicaVotes>(votes);
}

void Evidence::NoteEvent(const NodeSeen& seen, Instant now) {
  auto& side = KubeletOf(seen.node.name);
  // Until it was seen nobody knew its address, so that a probe of it has reached nobody.
  const auto node = nodes_.find(seen.node.node_id);
  if (node != nodes_.end() && side.node_id != seen.node.node_id) node->second.probe_sent_at.reset();
  if (!side.lease_at) side.lease_at = side.renewed_by = now;
  if (side.ready && !seen.node.ready) side.not_ready_since = now;
  side.ready = seen.node.ready;
  side.node_id = seen.node.node_id;
}

void Evidence::NoteEvent(const NodeGone& gone) {
  SetKubelet(gone.node, nullptr);
  kubelets_.erase(gone.node);
}

void Evidence::ForgetLeases(const std::function<bool(const NodeName&)>& has_no_node) {
  std::vector<NodeName> gone;
  for (const auto& [name, kubelet] : kubelets_)
    if (has_no_node(name)) gone.push_back(name);
  for (const NodeName& name : gone) NoteEvent(NodeGone{name});
}

void Evidence::ApiAnswers(Instant now) {
  if (!ApiUp(now)) {
    // Then all nodes are marked as not ready before their kubelets have had their turn.
    if (now - api_at_ >= settings_.kubelet_stale) kubelets_turn_ = now + settings_.kubelet_stale;
    api_since_ = now;
  }
  api_up_ = true;
  api_at_ = now;
}

bool Evidence::ArrayUp(const ArrayId& array) const {
  const auto found = arrays_.find(array);
  return found != arrays_.end() && found->second.up;
}

bool Evidence::ArraysUp() const {
  return std::all_of(arrays_.begin(), arrays_.end(),
                     [](const auto& channel) { return channel.second.up || channel.second.views == 0; });
}

bool Evidence::ApiUp(Instant now) const {
  return api_up_ && now - LatestOf(window_, api_at_) < settings_.observer_lost;
}

bool Evidence::Arrives(const NodeEvidence& node, Instant now) const {
  return node.heard && !node.closed && now - LatestOf(window_, node.heartbeat_at) < settings_.silence;
}

bool Evidence::HearsPlugin(const Node& node, Instant now) const {
  // Of nearly every node this tells, and is quick.
  const auto current = nodes_.find(node.node_id);
  if (current != nodes_.end() && Arrives(current->second, now)) return true;
  const auto lands = [&](const ArraySide& side) {
    return side.array->up && side.heartbeat &&
           side.array->SilenceSince(side.heartbeat, Instant(), now, settings_.look) < settings_.silence;
  };
  const auto instances = InstancesOf(nodes_, node.name);
  return std::any_of(instances.begin(), instances.end(), [&](const auto* instance) {
    const auto& sides = instance->second.arrays;
    return Arrives(instance->second, now) || std::any_of(sides.begin(), sides.end(), lands);
  });
}

bool Evidence::HasSuccessor(const NodeId& id, Instant now) const {
  const auto arrives = [&](const NodeEvidence& node) {
    return node.heard && now - LatestOf(window_, node.heartbeat_at) < settings_.silence;
  };
  const auto self = nodes_.find(id);
  if (self != nodes_.end() && arrives(self->second)) return false;
  const auto instances = InstancesOf(nodes_, NameOf(id));
  return std::any_of(instances.begin(), instances.end(), [&](const auto* instance) {
    return instance->first != id && arrives(instance->second);
  });
}

bool Evidence::HoldsVolume(const NodeId& id, const ArrayId& array, const VolumeId& volume) const {
  const auto node = nodes_.find(id);
  if (node == nodes_.end()) return false;
  const auto* side = node->second.Find(array);
  return side != nullptr && side->HoldsVolume(volume);
}

bool Evidence::LacksVolume(const NodeId& id, const ArrayId& array, const VolumeId& volume) const {
  const auto node = nodes_.find(id);
  const auto channel = arrays_.find(array);
  if (node == nodes_.end() || channel == arrays_.end() || !channel->second.viewed_at) return false;
  const Instant asked = *channel->second.viewed_at - channel->second.took;
  return channel->second.up && !(asked < node->second.present_since) && !HoldsVolume(id, array, volume);
}

NodeId Evidence::HeldByOtherInstance(const NodeId& id, const ArrayId& array, const VolumeId& volume) const {
  for (const auto* instance : InstancesOf(nodes_, NameOf(id)))
    if (instance->first != id && HoldsVolume(instance->first, array, volume)) return instance->first;
  return {};
}

bool Evidence::Reaches(const NodeId& id, const ArrayId& array, Instant now) const {
  const auto node = nodes_.find(id);
  if (node == nodes_.end() || !ArrayUp(array)) return false;
  const auto* side = node->second.Find(array);
  if (side == nullptr) return true;
  if (!side->heartbeat) return side->heartbeat_sequence == 0;  // it never had any, or is awaited
  return side->array->SilenceSince(side->heartbeat, Instant(), now, settings_.look) < settings_.silence;
}

bool Evidence::CouldReach(const NodeId& id, const ArrayId& array, Instant now) const {
  if (!Reaches(id, array, now)) return false;
  const auto node = nodes_.find(id);
  const auto* side = node == nodes_.end() ? nullptr : node->second.Find(array);
  return (side && side->heartbeat) || !arrays_.at(array).heartbeats.latest_at;
}

std::vector<NodeId> Evidence::TakeProbesDue(Instant now) {
  std::vector<NodeId> due;
  // All nodes of a large cluster are met at once: their probes are spread over the ticks.
  size_t spare = std::max(kProbesOfTheWell, nodes_.size() / 100);
  size_t witnesses = witnesses_.AreWanted(now, settings_.silence) ? kWitnesses : 0;
  for (auto& [id, node] : nodes_) {
    bool often = IsSilent(node, now);
    const bool answered_lately =
        node.probe_answered_at && now - *node.probe_answered_at < settings_.probe_fresh;
    if (!often && witnesses > 0 && answered_lately) often = true, --witnesses;
    if (!IsProbeDue(node, often, now) || (!often && spare == 0)) continue;
    if (!often) --spare;
    node.probe_sent_at = now;
    due.push_back(id);
  }
  return due;
}

// By the channels it was met on. A closed stream may be an orderly shutdown, after which the kernel is gone.
bool Evidence::IsSilent(const NodeEvidence& node, Instant now) const {
  if (node.heard) return node.closed || now - LatestOf(window_, node.heartbeat_at) >= settings_.probe_after;
  const auto landed = LastSignOf(node);
  return landed > *node.met_at && now - LatestOf(window_, landed) >= settings_.storage_late;
}

bool Evidence::IsProbeDue(const NodeEvidence& node, bool often, Instant now) const {
  return !node.probe_sent_at ||
         now - *node.probe_sent_at >= (often ? settings_.probe_period : settings_.probe_well);
}

}  // namespace lunkeeper::fencing
