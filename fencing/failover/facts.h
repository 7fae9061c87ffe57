#pragma once
// What is kept of each Kubernetes object, and no more: 10,000 nodes and 100,000 pods have to fit. Pure
// functions from JSON; what is missing reads as empty, and a word that is not understood is taken as the
// careful one.

#include <optional>
#include <string>
#include <vector>

#include "fencing/core/types.h"
#include "fencing/kube/json.h"

namespace lunkeeper::fencing {

// The label or annotation on a Pod, Namespace, StorageClass or Node, and its values.
inline constexpr char kFailoverKey[] = "lunkeeper.io/failover";
inline constexpr char kTaintKey[] = "lunkeeper.io/fenced";
inline constexpr char kOutOfServiceKey[] = "node.kubernetes.io/out-of-service";

struct NodeFacts {
  Uid uid;
  Version version;
  bool ready = false, exempt = false, out_of_service = false;
  std::string taints;   // spec.taints as JSON; empty: none
  std::string address;  // InternalIP
  uint16_t kubelet_port = 0;
  Shared<NodeLabels> labels;
  friend bool operator==(const NodeFacts&, const NodeFacts&) = default;
};

struct PodFacts {
  Uid uid;
  NodeName node;
  std::string owner_kind;
  FailoverPolicy wish = FailoverPolicy::kUnsaid;
  std::vector<std::string> claims;  // "namespace/name"
  bool foreign_volumes = false;     // other than by claim
  bool deleting = false, running = false, crash_looping = false;
  Shared<Scheduling> scheduling;
  friend bool operator==(const PodFacts&, const PodFacts&) = default;
};

// A PersistentVolume that is bound.
struct VolumeFacts {
  std::string claim;  // "namespace/name"
  VolumeId volume;    // empty: another driver's
  std::string storage_class;
  bool block = false;  // pods see a device, not a file system
  friend bool operator==(const VolumeFacts&, const VolumeFacts&) = default;
};

NodeFacts ReadNode(const kube::Json& node);
// Of a CSINode: our driver's node id.
std::optional<NodeId> ReadInstance(const kube::Json& csi_node);
// None: it has no persistent volume, or has ended.
std::optional<PodFacts> ReadPod(const kube::Json& pod);
std::optional<VolumeFacts> ReadVolume(const kube::Json& persistent_volume);
// Never wins over always; a value that is neither means never.
FailoverPolicy ReadFailoverPolicy(const kube::Json& object);

// Our taint's value: the instance, the last part of the node's id. Short whatever the machine is called; the
// machine is the one that has the taint.
std::string TaintValueOf(const NodeId& node);
// The JSON of a Node's taints with ours set to `value`, or without it if that is empty.
kube::Json WithTaint(const std::string& taints, const std::string& value);
// Ours in there; empty: none.
std::string TaintIn(const std::string& taints);

}  // namespace lunkeeper::fencing
