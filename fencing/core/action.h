#pragma once
// All that the core asks of the world. An action with an id is answered by one Done; a runner that crashed or
// gave up may never answer, and the core then asks again. Every action may be repeated.

#include <optional>
#include <variant>

#include "fencing/core/phase.h"
#include "fencing/core/refusal.h"
#include "fencing/core/types.h"

namespace lunkeeper::fencing {

// Takes or renews the leader's lease for this replica, if its version is still `expected`.
struct WriteLease {
  Version expected;
  Instant sent;          // tells the core's attempts apart
  bool release = false;  // gives it up instead
};
struct BeginTerm {
  ArrayId array;
};
struct Probe {
  NodeId node;
};
// Connects to the portals of an array that one node alone has used, as its agent names them for that node.
struct ProbePortals {
  ArrayId array;
  NodeId node;
};
// Reads what the API server itself has of the kubelet of the node's machine: the watches may be late, and say
// nothing of a kubelet that is well.
struct ReadKubelet {
  NodeId node;
  Instant asked;
};
// Asks every other replica whether the node's heartbeats reach it, and what it sees. Without a node, only the
// latter. A silent one does not delay the answer.
struct AskReplicas {
  NodeId node;
  Instant asked;
};
// Creates (no version) or replaces the record, if its version is still the one it carries.
struct PutNodeFence {
  NodeFence fence;
};
struct RemoveNodeFence {
  NodeId node;
  Uid uid;
  Version version;
  bool deleting = false;  // it has been deleted, and only its finalizers are left
};
struct FenceNode {
  ArrayId array;
  Term term = 0;
  NodeId node;
  VolumeSet volumes;
};
struct UnfenceNode {
  ArrayId array;
  Term term = 0;
  NodeId node;
  Generation generation = 0;
};
// NoSchedule. The one of a fence names the NodeFence, and the one of a silent plugin has any value; an empty
// value removes it. If the node's version is still `expected`.
enum class OurTaint { kFenced, kPluginNotReady };
struct SetTaint {
  NodeName node;
  Version expected;
  std::string value;
  OurTaint taint = OurTaint::kFenced;
};
enum class Grace { kNone, kOrdinary };
enum class WhyDeleted {
  kMoved,         // off its node, by a failover
  kCrashLooped,   // a new pod starts without kubelet's pause
  kDeviceFailed,  // for good; a new pod gets a new one
};
struct DeletePod {
  PodId pod;
  Uid uid;
  Grace grace = Grace::kNone;
  WhyDeleted why = WhyDeleted::kMoved;
};
// Stores on the volume's object which nodes died of it; none: no more.
struct ChargeVolume {
  VolumeId volume;
  ChargedNodes nodes;
};
// A fence is in force, and the node has to learn of it. The runner puts it on the board from which heartbeats
// are answered. The notice on the array's heartbeat LUN is no part of this: the array's agent writes it by
// itself, with the fence.
struct Notify {
  NodeId node;
  ArrayId array;
  ArrayFence fence;
};
// For events, metrics and `lunkeeper status`. Said once when it becomes true. Programs go by the kind with
// its phase or refusal; the text is for people.
enum class ReportKind { kClassification, kRefused, kProgress, kHeldBack, kPlugin, kLeadership };
struct Report {
  ReportKind kind = ReportKind::kClassification;
  NodeId node = {};  // of kLeadership: none
  std::string text = {};
  std::optional<Phase> phase = {};      // of kProgress
  std::optional<Refusal> refusal = {};  // of kRefused
};

struct Action {
  uint64_t id = 0;  // of Probe, ProbePortals, Notify and Report: none
  std::variant<WriteLease, BeginTerm, Probe, ProbePortals, ReadKubelet, AskReplicas, PutNodeFence,
               RemoveNodeFence, FenceNode, UnfenceNode, SetTaint, DeletePod, ChargeVolume, Notify, Report>
      what;
};

}  // namespace lunkeeper::fencing
