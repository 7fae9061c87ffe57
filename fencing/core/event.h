#pragma once
// All that can happen to the core. `now` is the observer's monotonic clock; it never goes back. Events may
// come late, twice, or not at all: what they say is compared with what is known, never counted.

#include <optional>
#include <variant>
#include <vector>

#include "fencing/core/array_view.h"
#include "fencing/core/types.h"

namespace lunkeeper::fencing {

// Due each Settings::tick. A gap between two of them is the observer's own stall.
struct Tick {};

// From the node itself: replicas relay nothing.
struct Heartbeat {
  NodeId node;
  std::string boot;
  uint64_t sequence = 0;   // rises within a boot
  bool kubelet_ok = true;  // kubelet and the runtime answer, seen from inside the node
  VolumeSet failing;       // volumes whose I/O hangs, as the path is lost, or has failed for good
  VolumeSet failed;        // of these, the ones that failed for good: no path brings them back
  VolumeSet present;       // volumes that have a device on the node; before its first look, the fenced ones
  std::map<ArrayId, Generation> known;  // the newest fence it knows of at each array
  VolumeSet closed = {};  // volumes whose file system closed itself to writes: told to people, not acted on
  VolumeSet idle = {};    // volumes whose path may be lost, and of which no I/O waits
};
struct StreamClosed {  // with a FIN or a reset: the node's kernel is alive
  NodeId node;
};

// A node asks for a volume which another node holds. Repeated while it waits.
struct VolumeWanted {
  ArrayId array;
  VolumeId volume;
  NodeId holder;
};

struct ProbeAnswer {
  NodeId node;
  bool answered = false, no_route = false;  // no_route: nobody was asked
};

// The orchestrator's objects. ApiSynced: everything has been listed, and what is gone has been said to be.
// ApiAlive: the watches are live. ApiLost: they are not, and what is known grows old.
struct ApiSynced {};
struct ApiAlive {};
struct ApiLost {};
struct KubeletLease {  // renewed
  NodeName node;
  Version renewal;  // another with each renewal; empty: not known
  std::optional<KubeletTime> renewed = {};
};
struct NodeSeen {
  Node node;
};
struct NodeGone {
  NodeName node;
};
struct PodSeen {
  Pod pod;
};
struct PodGone {
  PodId pod;
};
// Of a volume that nodes died of; or of one of which they did, and which is free of that now.
struct VolumeCharged {
  VolumeId volume;
  ChargedNodes nodes;
};
struct FenceSeen {
  NodeFence fence;
};
struct FenceGone {
  NodeId node;
};
// The leader's lease as a read sent at `asked` found it; no holder: there is none. Read it often.
struct LeaseSeen {
  std::string holder;
  Version version;
  Instant asked = {};
};

enum class Outcome {
  kOk,
  kConflict,  // the object is not as the caller thought: look again
  kGone,      // there is no such object
  kRefused,   // a newer term exists
  kFailed     // not known whether it was done: try again
};
struct KubeletState {  // as a ReadKubelet found it
  Version renewal;     // of its lease
  bool ready = true;
  std::optional<KubeletTime> renewed = {};
};
struct Done {  // the answer to an action which has an id
  uint64_t action = 0;
  Outcome outcome = Outcome::kOk;
  std::optional<ArrayFence> fence;  // of a FenceNode
  Term term = 0;                    // of a BeginTerm
  Version version;                  // of a write: the object's new one
  std::optional<KubeletState> kubelet = {};
  ReplicaVotes votes = {};  // of an AskReplicas
};

struct Event {
  Instant now;
  std::variant<Tick, Heartbeat, StreamClosed, ArrayView, ArrayLost, ArrayConfigured, ArrayGone, VolumeWanted,
               ProbeAnswer, PortalAnswered, ApiSynced, ApiAlive, ApiLost, KubeletLease, NodeSeen, NodeGone,
               PodSeen, PodGone, VolumeCharged, FenceSeen, FenceGone, LeaseSeen, Done>
      what;
};

}  // namespace lunkeeper::fencing
