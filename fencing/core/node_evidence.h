#pragma once
// What Evidence keeps of each node and of each array: the last signs of life, and when they came. Plain
// values; nothing fails. Times are the observer's.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "fencing/core/event.h"

namespace lunkeeper::fencing {

// One look at an array. What the array heard by `asked` is in the answer.
struct Look {
  Instant asked;
  Span since_last;  // between asking this time and the last time
  Span usual;       // the same of looks that are not late
  Span others_heard;
  // By how much longer than usual nobody looked.
  Span late() const { return std::max(Span(), since_last - usual); }
  // Between two signs of life, after which the array had heard nobody for a while.
  Span gap() const { return others_heard + late(); }
  // The array may have been away since the last look, and nobody saw it.
  bool is_sparse() const { return since_last >= others_heard; }
};

// The last sign of life of a node at an array, made at some time between `from` and `until`.
struct StorageSign {
  Instant from, until;
  Instant counts_from;  // silence after it counts from then
  bool missed = false;  // there was no later one, for longer than a heartbeat may be late
  StorageSign(Instant earliest, Instant latest, const Look& look);
  // `look` has shown no later one.
  void NoteMissed(Instant latest, const Look& look);
};

struct ArrayChannel {
  ArrayId id;
  bool up = false;
  Instant since = {};  // it is up
  std::optional<Instant> lost_at = {};
  uint64_t views = 0;
  std::optional<Instant> looked_at = {}, viewed_at = {};  // the last look was asked for, and answered
  Span took = {};                                         // all of that look
  size_t holdings = 0;                                    // by the last view
  size_t number = 0;                                      // in the order in which they came
  // The last sign of life of any node there, and the last one of any other than that node.
  NodeId latest_node = {};
  std::optional<Instant> latest_at = {}, others_at = {};
  // It has heard nodes without a gap since then. After a gap they come back one by one.
  std::optional<Instant> heard_since = {};
  // A node showed life between `from` and `until`; `gap` is the look's.
  void NoteLife(const NodeId& node, Instant from, Instant until, Span gap);
  // What is proven of the silence since `sign`, and since `start` at the earliest. `lasts`: for how long the
  // last look stands for what it showed.
  Span SilenceSince(const std::optional<StorageSign>& sign, Instant start, Instant now, Span lasts) const;
  // Of nodes other than `node`; empty: none ever showed any.
  std::optional<Instant> OthersThan(const NodeId& node) const {
    return node == latest_node ? others_at : latest_at;
  }
};

// What an array shows of a node.
struct ArraySide {
  const ArrayChannel* array = nullptr;
  // Empty: none ever landed, so there is no such channel, and its silence says nothing.
  std::optional<StorageSign> heartbeat;
  uint64_t heartbeat_sequence = 0;
  std::optional<StorageSign> io;
  struct Held {
    VolumeId volume;
    uint64_t commands = 0;  // completed
    uint64_t view = 0;      // the last one that had it
    Generation generation = 0;
    Instant since = {};         // the last view that did not have this grant
    bool granted_then = false;  // and not long before, unseen by this observer
  };
  std::vector<Held> holdings;  // in order of volume
  Held& AddHolding(const VolumeId& volume);
  const Held* FindHolding(const VolumeId& volume) const;
  bool HoldsVolume(const VolumeId& volume) const { return FindHolding(volume) != nullptr; }
};

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
  // It has shown life since then, by the network or on an array, without a long gap; empty: since it was met.
  std::optional<Instant> here_since;
  Heartbeat heartbeat;  // the last one
  std::map<VolumeId, Instant> hanging_since;
  std::map<std::string, uint64_t> other_boots;  // than the last heartbeat's, with the last sequence of each
  std::vector<ArraySide> arrays;                // one for each that shows anything of it, by number
  bool calibrated = false;                      // the probe was answered once
  int unanswered = 0;                           // in a row
  std::optional<Instant> no_route_at;           // the first of these that found no way to it
  std::optional<Instant> probe_answered_at, probe_sent_at;
  std::optional<Instant> votes_asked_at, votes_at;  // the other replicas were asked, and had answered
  ReplicaVotes votes;
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
