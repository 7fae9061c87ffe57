#pragma once
// What Evidence keeps of each node and of each array: the last signs of life, and when they came. Plain
// values; nothing fails. Times are the observer's; 0: never.

#include <map>
#include <string>
#include <vector>

#include "fencing/core/event.h"

namespace lunkeeper::fencing {

struct ArrayChannel {
  ArrayId id;
  bool up = false;
  Millis since = 0;  // it is up, or is not
  uint64_t views = 0;
  size_t holdings = 0;  // by the last view
  size_t number = 0;    // in the order in which they came
};

// What an array shows of a node.
struct ArraySide {
  const ArrayChannel* array = nullptr;
  Millis heartbeat_at = 0;  // 0: none ever landed, so there is no such channel, which says nothing
  uint64_t heartbeat_sequence = 0;
  Millis io_at = 0;
  struct Held {
    VolumeId volume;
    uint64_t commands = 0;  // completed
    uint64_t view = 0;      // the last one that had it
  };
  std::vector<Held> holdings;  // in order of volume
  Held& Hold(const VolumeId& volume);
  bool Holds(const VolumeId& volume) const;
};

// What the orchestrator shows of a machine, by its name.
struct KubeletSide {
  bool ready = true;
  NodeId instance;
  Millis lease_at = 0, not_ready_since = 0;
};

struct NodeEvidence {
  const KubeletSide* kubelet = nullptr;  // null: there is no Node of its name
  Millis met_at = 0;  // nothing before it counts as silence: a new machine is not one that was long away
  bool heard = false;
  bool closed = false;
  Millis heartbeat_at = 0;
  Millis hung_since = 0;
  Millis outage_until = 0;  // when the last silence ended
  Heartbeat heartbeat;      // the last one
  std::map<VolumeId, Millis> failing_since;
  std::map<std::string, uint64_t> other_boots;  // than the last heartbeat's, with the last sequence of each
  std::vector<ArraySide> arrays;                // one for each that shows anything of it, by number
  bool calibrated = false;                      // the probe was answered once
  int unanswered = 0;                           // in a row
  Millis probe_answered_at = 0, probe_sent_at = 0;
  ArraySide& At(const ArrayChannel& array);
  const ArraySide* Find(const ArrayId& array) const;
  bool HasGrants() const;
};

}  // namespace lunkeeper::fencing
