#pragma once
// What is known of each node, channel by channel and array by array, and for how long. Each channel is
// independent: a missing one (an array that is down, an API server that does not answer, a probe that was
// never calibrated) is unknown, which is not the same as silent. An observer that was stalled itself starts
// every window anew. One thread owns it; nothing fails; old, repeated and foreign events change nothing.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "fencing/core/event.h"
#include "fencing/core/indexed_map.h"
#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

enum class Network { kUnheard, kArrives, kClosed, kSilent };
enum class Storage { kUnknown, kAlive, kSilent };
enum class Kernel { kUnknown, kAnswers, kUnanswered };
enum class Kubelet { kUnknown, kReady, kNotReady };

// One node at one moment: the columns of the evidence table.
struct Signals {
  Network network = Network::kUnheard;
  Millis silent_for = 0;
  Storage storage = Storage::kUnknown;
  Millis storage_silent_for = 0;  // no beat and no I/O, on every array that is up
  Millis io_quiet_for = 0;
  Kernel kernel = Kernel::kUnknown;
  Kubelet kubelet = Kubelet::kUnknown;
  Millis not_ready_for = 0;
  Millis hung_for = 0;     // the node's own view of its kubelet and runtime; 0: they answer
  std::set<ArrayId> lost;  // arrays that are up, silent from here, and whose volumes fail here
};

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
  Millis beat_at = 0;  // 0: none ever landed, so there is no such channel, which says nothing
  uint64_t beat_sequence = 0;
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
  Millis beat_at = 0;
  Millis hung_since = 0;
  Millis outage_until = 0;  // when the last silence ended
  Beat beat;                // the last one
  std::map<VolumeId, Millis> failing_since;
  std::map<std::string, uint64_t> other_boots;  // than the last beat's, with the last sequence of each
  std::vector<ArraySide> arrays;                // one for each that shows anything of it, by number
  bool calibrated = false;                      // the probe was answered once
  int unanswered = 0;                           // in a row
  Millis probe_answered_at = 0, probe_sent_at = 0;
  ArraySide& At(const ArrayChannel& array);
  const ArraySide* Find(const ArrayId& array) const;
  bool HasGrants() const;
};

class Evidence {
 public:
  explicit Evidence(const Settings& settings) : settings_(settings) {}
  Evidence(const Evidence&) = delete;  // what nodes know of an array points into it
  Evidence& operator=(const Evidence&) = delete;

  // First for every event: notices the observer's own stalls.
  void Observe(Millis now);

  void On(Beat beat, Millis now);
  void On(const StreamClosed& closed, Millis now);
  void On(const StorageBeats& beats, Millis now);
  void On(const ArrayView& view, Millis now);
  void On(const ArrayLost& lost, Millis now);
  void On(const ArrayGone& gone);
  void On(const ProbeResult& result, Millis now);
  void On(const KubeletLease& lease, Millis now);
  void On(const NodeSeen& seen, Millis now);
  void On(const NodeGone& gone);
  void ApiAnswers(Millis now);
  void ApiIsLost() { api_up_ = false; }

  Signals Look(const NodeId& node, Millis now) const;
  // Of one that is at hand: `known` is what nodes() has of it.
  Signals Look(const NodeId& node, const NodeEvidence& known, Millis now) const;
  bool ArrayUp(const ArrayId& array) const;
  bool ArraysUp() const;  // all that were ever seen
  // No array has answered for a while: it may be this observer that is cut off from them.
  bool IsBlind(Millis now) const;
  bool ApiUp(Millis now) const;
  // The node hears, and nothing of `volumes` is left on it; with a generation: and it knows of that fence.
  bool IsClean(const NodeId& node, const VolumeSet& volumes, const ArrayId& array, Generation known,
               Millis now) const;
  // Another instance of its name is heard, and it is not.
  bool IsSuperseded(const NodeId& node, Millis now) const;
  // By the last view of the array.
  bool Holds(const NodeId& node, const ArrayId& array, const VolumeId& volume) const;
  // Another instance of this node's name that holds `volume`; none: empty.
  NodeId HeldByNamesake(const NodeId& node, const ArrayId& array, const VolumeId& volume) const;
  // Its keeper beats land on the array; or it never had any, and the array is up.
  bool Reaches(const NodeId& node, const ArrayId& array, Millis now) const;
  // Those of which a probe is due: silent, or well and not calibrated yet. Marks them as probed.
  std::vector<NodeId> TakeProbesDue(Millis now);

  const IndexedMap<NodeId, NodeEvidence>& nodes() const { return nodes_; }

 private:
  bool IsProbeDue(const NodeEvidence& node, Millis now) const;
  void LookAtStorage(const NodeEvidence& node, Millis now, Signals& signals) const;
  void LookAtKernel(const NodeEvidence& node, Millis now, Signals& signals) const;
  void LookAtKubelet(const NodeId& id, const NodeEvidence& node, Millis now, Signals& signals) const;
  NodeEvidence& Meet(const NodeId& node, Millis now);
  KubeletSide& KubeletOf(const NodeName& name);
  // For all lives of the machine.
  void SetKubelet(const NodeName& name, const KubeletSide* kubelet);
  ArrayChannel& ChannelOf(const ArrayId& array);

  const Settings& settings_;
  Millis last_ = 0;
  Millis window_ = 0;  // nothing before it counts as silence
  bool api_up_ = false;
  Millis api_since_ = 0, api_at_ = 0;
  Millis kubelets_turn_ = 0;  // ends then: after an outage of the API server that they could not renew in
  IndexedMap<NodeId, NodeEvidence> nodes_;
  IndexedMap<NodeName, KubeletSide> kubelets_;
  std::map<ArrayId, ArrayChannel> arrays_;
  size_t arrays_met_ = 0;
};

}  // namespace lunkeeper::fencing
