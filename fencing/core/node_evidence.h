#pragma once
// What Evidence keeps of each node: the last signs of life, and when they came. Plain values; nothing fails.
// Times are the observer's.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "fencing/core/array_evidence.h"
#include "fencing/core/event.h"

namespace lunkeeper::fencing {

// What the orchestrator shows of a machine, by its name.
struct KubeletSide {
  bool ready = true;
  NodeId node_id;
  std::optional<Instant> lease_at;     // its last renewal was seen
  std::optional<Instant> renewed_by;   // and was made, at the latest
  Version renewal;                     // by which it knows the last one
  std::optional<KubeletTime> renewed;  // when it was made, by the machine's own clock
  std::optional<KubeletTime> watched;  // the same of the last one that the watch brought
  Instant not_ready_since;             // if it is not
  // The API server itself was asked, and answered.
  std::optional<Instant> read_asked_at, read_at;
};

struct NodeEvidence {
  const KubeletSide* kubelet = nullptr;  // null: there is no Node of its name
  // Nothing before it counts as silence: a new machine has not been away for long.
  std::optional<Instant> met_at;
  bool heard = false;
  bool closed = false;
  std::optional<Instant> heartbeat_at;
  std::optional<Instant> hung_since;
  std::optional<Instant> outage_until;  // when the last silence ended
  // The same for its pods: what failed for good before is no outage that goes on.
  std::optional<Instant> kicks_since;
  // It has shown life since then, by the network or on an array, without a long gap; empty: since it was met.
  std::optional<Instant> here_since;
  Heartbeat heartbeat;    // the last one
  Instant present_since;  // what is on the node, as it says
  std::map<VolumeId, Instant> hanging_since;
  std::map<std::string, uint64_t> other_boots;  // than the last heartbeat's, with the last sequence of each
  std::vector<ArraySide> arrays;                // one for each that shows anything of it, by number
  bool calibrated = false;                      // the probe was answered once
  int unanswered = 0;                           // in a row
  std::optional<Instant> no_route_at;           // the first of these that found no way to it
  std::optional<Instant> probe_answered_at, probe_sent_at;
  std::optional<Instant> votes_asked_at, votes_at;  // the other replicas were asked, and had answered
  Shared<ReplicaVotes> votes;
  void NoteProbe(const ProbeAnswer& result, Instant now);
  ArraySide& SideOf(const ArrayChannel& array);
  const ArraySide* Find(const ArrayId& array) const;
  bool HasGrants() const;
  // When it was given the volume; empty: it has none, or this observer was not looking then.
  std::optional<Instant> GrantedAt(const ArrayId& array, const VolumeId& volume) const;
  // All that it holds, by the last views.
  VolumesByArray HeldVolumes() const;
};

// Its last heartbeat, by the network or on an array; or when it was met.
Instant LastSignOf(const NodeEvidence& node);

}  // namespace lunkeeper::fencing
