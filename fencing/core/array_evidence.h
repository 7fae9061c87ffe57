#pragma once
// What Evidence keeps of each array, and of each node there: whom it has heard, by which look. Plain values;
// nothing fails. Times are the observer's.

#include <algorithm>
#include <memory>
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

// Whom an array has heard: the last sign of life of any node, and the last one of any other than that node.
struct LatestSigns {
  NodeId latest_node = {};
  std::optional<Instant> latest_at = {}, others_at = {};
  // It has heard nodes without a gap since then. After a gap they come back one by one.
  std::optional<Instant> since = {};
  // A node showed life between `from` and `until`; `gap` is the look's.
  void NoteLife(const NodeId& node, Instant from, Instant until, Span gap);
  // The only node that showed any in that time before the last one; empty: there is none, or another one did,
  // too.
  NodeId OnlyNode(Span lately) const {
    return others_at && *latest_at - *others_at < lately ? NodeId() : latest_node;
  }
  // Of nodes other than `node`; empty: none ever showed any.
  std::optional<Instant> OthersThan(const NodeId& node) const {
    return node == latest_node ? others_at : latest_at;
  }
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
  // By I/O or heartbeats; and by heartbeats alone, which all go one way: that others' I/O goes another way
  // says nothing of a node whose heartbeats are missing.
  LatestSigns heard = {}, heartbeats = {};
  // Its portals, where one node alone has used it: who else could tell that node from the array?
  std::optional<Instant> portals_probed_at = {}, portal_answered_at = {};
  int portal_probes = 0;                        // since the last answer
  std::optional<Instant> portals_back_at = {};  // they had not answered for a while, and did so then
  // By the last view: why it did not count some holdings, and how many. Since when that is so.
  std::string unseen = {};
  size_t uncounted = 0;
  std::optional<Instant> unseen_since = {};
  // What is proven of the silence since `sign`, and since `start` at the earliest. `lasts`: for how long the
  // last look stands for what it showed.
  Span SilenceSince(const std::optional<StorageSign>& sign, Instant start, Instant now, Span lasts) const;
};

// What an array shows of a node.
struct ArraySide {
  const ArrayChannel* array = nullptr;
  // Empty: none ever landed, so there is no such channel, and its silence says nothing.
  std::optional<StorageSign> heartbeat;
  uint64_t heartbeat_sequence = 0;
  // It has landed some there, if only before an outage of the array.
  bool has_heartbeats() const { return heartbeat || heartbeat_sequence != 0; }
  void ForgetSigns();
  struct Held {
    VolumeId volume;
    uint64_t commands = 0;  // completed
    uint64_t view = 0;      // the last one that had it
    Generation generation = 0;
    Instant since = {};         // the last view that did not have this grant
    bool granted_then = false;  // and not long before, unseen by this observer
    // The last look that counted the commands was asked for; the last view that did not count them came.
    Instant counted_at = {};
    std::optional<Instant> uncounted_at = {};
    bool was_counted() const { return !uncounted_at || *uncounted_at <= counted_at; }
  };
  struct Use {  // of its volumes
    std::optional<StorageSign> io;
    std::vector<Held> holdings;  // in order of volume
  };
  const Use& use() const {
    static const Use kNone;
    return use_ ? *use_ : kNone;
  }
  Use& EnsureUse();
  Held& AddHolding(const VolumeId& volume);
  const Held* FindHolding(const VolumeId& volume) const;
  void ForgetHoldings(uint64_t last_view);  // all that this one did not have
  bool has_grants() const { return !use().holdings.empty(); }
  bool HoldsVolume(const VolumeId& volume) const { return FindHolding(volume) != nullptr; }
  // The last view that did not count all of its commands; empty: none.
  std::optional<Instant> UncountedAt() const;

 private:
  // Null: it never had a grant there. Most nodes have heartbeats at more arrays than they have grants at, and
  // each tick goes over a hundred thousand sides.
  std::unique_ptr<Use> use_;
};

}  // namespace lunkeeper::fencing
