#pragma once
// What is known of each node, channel by channel and array by array, and for how long. Each channel is
// independent: a missing one (an array that is down, an API server that does not answer, a probe that was
// never calibrated) is unknown, which is not the same as silent. An observer that was stalled itself starts
// every window anew. One thread owns it; nothing fails; old, repeated and foreign events change nothing.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/core/indexed_map.h"
#include "fencing/core/node_evidence.h"
#include "fencing/core/probe_witnesses.h"
#include "fencing/core/settings.h"
#include "fencing/core/signals.h"

namespace lunkeeper::fencing {

class Evidence {
 public:
  explicit Evidence(const Settings& settings) : settings_(settings) {}
  Evidence(const Evidence&) = delete;  // what nodes know of an array points into it
  Evidence& operator=(const Evidence&) = delete;

  // First for every event: notices the observer's own stalls.
  void Observe(Instant now);
  // When it began to watch, or to watch again after its last stall.
  Instant watches_since() const { return window_; }

  void NoteEvent(Heartbeat heartbeat, Instant now);
  void NoteEvent(const StreamClosed& closed, Instant now);
  void NoteEvent(const ArrayView& view, Instant now);
  void NoteEvent(const ArrayLost& lost, Instant now);
  void NoteLateArrays(Instant now);  // at each tick: an array that is late with its answer is lost, too
  void NoteEvent(const ArrayGone& gone);
  void NoteEvent(const ProbeAnswer& result, Instant now);
  void NoteEvent(const PortalAnswered& answer, Instant now);
  void NoteEvent(const KubeletLease& lease, Instant now);
  // What a ReadKubelet found; none: neither a Node nor a lease.
  void NoteRead(const ReadKubelet& call, const std::optional<KubeletState>& found, Instant now);
  void NoteVotes(const AskReplicas& call, const ReplicaVotes& votes, Instant now);
  void NoteEvent(const NodeSeen& seen, Instant now);
  void NoteEvent(const NodeGone& gone);
  void ForgetLeases(const std::function<bool(const NodeName&)>& has_no_node);
  // Forgets nodes that hold nothing, showed no sign for long, and are not what their name means now, unless
  // `needed`. Returns which.
  std::vector<NodeId> ForgetNodes(Instant now, const std::function<bool(const NodeId&)>& needed);
  void ApiAnswers(Instant now);
  void ApiIsLost() { api_up_ = false; }

  Signals SignalsOf(const NodeId& node, Instant now) const;
  // Of one that is at hand: `known` is what nodes() has of it.
  Signals SignalsOf(const NodeId& node, const NodeEvidence& known, Instant now) const;
  bool ArrayUp(const ArrayId& array) const;
  bool ArraysUp() const;  // all that ever answered: one that is only configured must not block the others
  // It has not answered this observer for a while, or never.
  bool IsUnseen(const ArrayId& array, Instant now) const;
  // Why some grants of an array that answers have not been seen for a while, for people; empty: all are.
  std::string WhatIsUnseen(const ArrayId& array, Instant now) const;
  // How many, on all arrays, by their last views.
  size_t CountUnseenGrants() const;
  // No array has answered for a while: it may be this observer that is cut off from them.
  bool IsBlind(Instant now) const;
  bool ApiUp(Instant now) const;
  // The API server itself was asked, at `since` or later, how its kubelet is, and has just answered, however
  // long that took; or there is nothing to ask. What the replicas say is waited for as long as they take.
  bool IsKubeletRead(const NodeId& node, Instant since, Instant now) const;
  // What the other replicas just said, who were asked at `since` or later, however long that took; null: they
  // have to be asked. The API server's word is waited for as long as it takes.
  const ReplicaVotes* VotesOn(const NodeId& node, Instant since, Instant now) const;
  // The node's heartbeats arrive, and it reports that nothing of `volumes` is left on it. With a generation:
  // it reports, too, that it knows of that fence.
  bool IsClean(const NodeId& node, const VolumeSet& volumes, const ArrayId& array, Generation known,
               Instant now) const;
  // Heartbeats of another instance of its name arrive, and its own do not.
  bool HasSuccessor(const NodeId& node, Instant now) const;
  bool Arrives(const NodeEvidence& node, Instant now) const;  // by the network
  // Heartbeats of any instance of the machine arrive, or land on an array: its plugin runs.
  bool HearsPlugin(const Node& node, Instant now) const;
  // The nodes that exist and whose heartbeats arrive. One machine counts once, whatever it calls itself.
  int CountArriving(Instant now) const;
  // By the last view of the array. Lacks: one that is newer than what the node says is on it.
  bool HoldsVolume(const NodeId& node, const ArrayId& array, const VolumeId& volume) const;
  bool LacksVolume(const NodeId& node, const ArrayId& array, const VolumeId& volume) const;
  // Another instance of this node's name that holds `volume`; none: empty.
  NodeId HeldByOtherInstance(const NodeId& node, const ArrayId& array, const VolumeId& volume) const;
  // Its heartbeats land on the array; or it never had any, and the array is up.
  bool Reaches(const NodeId& node, const ArrayId& array, Instant now) const;
  // The same of one that has nothing there yet: where others' heartbeats land, its own do, too.
  bool CouldReach(const NodeId& node, const ArrayId& array, Instant now) const;
  // Those of which a probe is due: silent, or well and not probed for long. Marks them as probed.
  std::vector<NodeId> TakeProbesDue(Instant now);
  std::vector<ProbePortals> TakePortalProbesDue(Instant now);  // the same of arrays with one user

  const IndexedMap<NodeId, NodeEvidence>& nodes() const { return nodes_; }

 private:
  void NoteHoldings(const ArrayView& view, Instant now, ArrayChannel& channel, const Look& look);
  static void NoteCommands(const Holding& holding, Instant now, ArrayChannel& channel, const Look& look,
                           ArraySide& side, ArraySide::Held& held);
  void NoteLanded(const ArrayView& view, Instant now, ArrayChannel& channel, const Look& look);
  // Before a sign of life is noted, made between `from` and `until`: after a gap the node is here since then.
  void NoteReturn(NodeEvidence& node, Instant from, Instant until, Span gap) const;
  // In the same way: by heartbeats, where the node has them; of an array that it alone used, by its portals.
  bool OthersReach(const ArraySide& side, const NodeId& node, Instant now) const;
  // A portal answers while the only user is silent, who has had time to come back after an outage of theirs.
  bool PortalAnswers(const ArrayChannel& array, Instant now) const;
  // A portal answered shortly before the array's only user fell silent, and none does now. Where none did so
  // there may be no way from here to that network at all.
  bool PortalsFellSilent(const ArrayChannel& array, Instant now) const;
  bool IsRecent(const std::optional<Instant>& sign, const ArrayChannel& array) const;
  // An array that hears no node at all is away itself: its silence says nothing of this node. Where no other
  // node ever used it, its portals tell. Nor does it say anything of a node without heartbeats some of whose
  // I/O it does not see.
  bool CanTellOf(const NodeId& node, const ArraySide& side, Instant now) const;
  // For how long all I/O of the node there has been seen, if there was any.
  Span SeenFor(const ArraySide& side, Instant now) const;
  bool IsSilent(const NodeEvidence& node, Instant now) const;
  bool IsProbeDue(const NodeEvidence& node, bool often, Instant now) const;
  void LookAtStorage(const NodeId& id, const NodeEvidence& node, Instant now, Signals& signals) const;
  void LookAtSilence(const NodeId& id, const NodeEvidence& node, Instant now, Signals& signals) const;
  void LookAtKernel(const NodeEvidence& node, Instant now, Signals& signals) const;
  void LookAtKubelet(const NodeId& id, const NodeEvidence& node, Instant now, Signals& signals) const;
  NodeEvidence& EnsureNode(const NodeId& node, Instant now);
  void LimitInstances(const NodeName& name);
  KubeletSide& KubeletOf(const NodeName& name);
  static void NoteRenewal(KubeletSide& side, const KubeletLease& lease, Instant now);
  // For all instances of the machine.
  void SetKubelet(const NodeName& name, const KubeletSide* kubelet);
  ArrayChannel& ChannelOf(const ArrayId& array);

  const Settings& settings_;
  std::optional<Instant> last_;
  Instant window_;  // nothing before it counts as silence
  bool api_up_ = false;
  Instant api_since_, api_at_;
  // After an outage of the API server: until then kubelets, which could not renew in it, may do so.
  std::optional<Instant> kubelets_turn_;
  IndexedMap<NodeId, NodeEvidence> nodes_;
  IndexedMap<NodeName, KubeletSide> kubelets_;
  std::map<ArrayId, ArrayChannel> arrays_;
  size_t arrays_met_ = 0;
  ProbeWitnesses witnesses_;
};

}  // namespace lunkeeper::fencing
