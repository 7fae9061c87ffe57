#pragma once
// What the failover core knows of the world, as plain values: nodes, pods, fences. The runner fills them from
// the orchestrator's objects and the arrays' answers; the core names no protocol. Copied freely, never fails.

#include <boost/container/flat_map.hpp>
#include <boost/container/flat_set.hpp>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "devices/node_id.h"
#include "devices/types.h"
#include "fencing/core/phase.h"
#include "fencing/core/scheduling.h"
#include "fencing/core/shared.h"
#include "fencing/core/time.h"
#include "fencing/core/uid.h"

namespace lunkeeper::fencing {

using ArrayId = Name<struct ArrayTag>;
using NodeName = Name<struct NodeNameTag>;  // the machine's name; a NodeId is one instance of it
using PodId = Name<struct PodTag>;          // namespace/name
using Version = Name<struct VersionTag>;    // of an object; opaque; empty: there is no such object yet

// Flat, as there are ten thousands of them with a few entries each. What is added may move the others.
using VolumeSet = boost::container::flat_set<VolumeId>;
using VolumesByArray = boost::container::flat_map<ArrayId, VolumeSet>;

// What a pod, its namespace or its StorageClass says about being moved.
enum class FailoverPolicy { kUnsaid, kNever, kAlways };

struct Pod {
  PodId id;
  Uid uid;
  NodeName node;           // empty: not scheduled yet
  std::string owner_kind;  // with its API group, as StatefulSet.apps; empty: nobody re-creates it
  Uid owner;
  FailoverPolicy policy = FailoverPolicy::kUnsaid;
  VolumesByArray volumes;        // ours
  VolumeSet raw;                 // of those: block devices, of which no node's kernel mounts the contents
  bool foreign_volumes = false;  // it has persistent volumes of another driver too
  bool plugin = false;           // the driver's own, of its node part
  Shared<Labels> labels;
  Resources asks;
  Shared<Scheduling> scheduling;
  std::vector<Shared<Scheduling>> places;  // of its volumes, where those are tied to nodes
  bool deleting = false;
  bool deleted = false;  // by force: its object only waits for its finalizers
  bool running = false;
  bool crash_looping = false;
  friend bool operator==(const Pod&, const Pod&) = default;
};

// The taint that keeps new pods off a node whose plugin is silent. A node may be registered with it, too.
enum class PluginTaint { kNone, kAtStart, kByLeader };

struct Node {
  NodeName name;
  Uid uid;
  Version version;
  NodeId node_id;  // of the driver that is registered there now; empty: none
  bool ready = true;
  bool exempt = false;          // never fenced without being asked by hand
  bool out_of_service = false;  // an administrator's taint: a fence asked for by hand
  std::string taint;            // ours: the NodeFence that put it there; empty: none
  PluginTaint plugin_taint = PluginTaint::kNone;
  Shared<NodeLabels> labels;  // with everybody else's taints
  friend bool operator==(const Node&, const Node&) = default;
};

// A fence as the array has it: of a node, or of a machine (MachineId).
struct ArrayFence {
  NodeId node;
  Generation generation = 0;
  VolumeSet volumes;
  // Of a machine: nothing is granted to any node of it. Of a node: the array has taken back all that the
  // fence is to take.
  bool drained = true;
  bool manual = false;  // an operator asked this array for it, last
};

// Nodes that died soon after they mounted a volume, one after the other.
using ChargedNodes = std::vector<NodeId>;

// The record of a failover, and the request for one made by hand. Its name is the node's id.
struct NodeFence {
  NodeId node;
  Uid uid;
  Version version;
  std::string cause;                          // the row of the evidence table, or what an operator wrote
  std::string requested_by;                   // empty: decided by evidence
  bool graceful = false;                      // pods are asked to leave first; the fence comes at a deadline
  bool deleting = false;                      // someone wants it lifted, once the node is clean
  VolumesByArray volumes;                     // to be fenced, or fenced
  std::map<ArrayId, Generation> generations;  // verified
  std::set<ArrayId> unasked;                  // were away all the time, so that they have no fence of it
  Phase phase = Phase::kRequested;
  friend bool operator==(const NodeFence&, const NodeFence&) = default;
  bool is_manual() const { return !requested_by.empty(); }
};

// What a replica sees that could lead.
struct ReplicaSight {
  std::string replica = {};  // its name in the lease
  Span age = {};             // since it started, or last stalled
  int arrays = 0;            // configured ones that answer it
  int nodes = 0;             // that exist, and whose heartbeats reach it
  friend bool operator==(const ReplicaSight&, const ReplicaSight&) = default;
};

// What the other replicas say of a node. One that did not answer in time has no vote.
struct ReplicaVotes {
  int answered = 0, silent = 0;
  std::string heard_by = {};              // one that hears it now; empty: none did that answered
  std::vector<ReplicaSight> sights = {};  // of replicas that answered and could lead
  // One to which its stream has ended and whose probes its kernel answers now; empty: none is known.
  std::string kernel_answers_to = {};
  friend bool operator==(const ReplicaVotes&, const ReplicaVotes&) = default;
};

inline NodeName NameOf(const NodeId& node) { return NodeName(MachineOf(node)); }
inline std::string NamespaceOf(const PodId& pod) { return pod.value().substr(0, pod.value().find('/')); }

}  // namespace lunkeeper::fencing
