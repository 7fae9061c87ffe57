#pragma once
// Reduces each Kubernetes object to the facts that failover needs: 10,000 nodes and 100,000 pods have to fit
// into memory. Pure functions of JSON. A missing field reads as empty, and an unknown word as the careful
// one.

#include <optional>
#include <string>
#include <vector>

#include "fencing/core/types.h"
#include "fencing/kube/json.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::fencing {

inline const kube::Resource kPersistentVolumes{"", "v1", "persistentvolumes"};
// Each kubelet renews the one of its Node's name.
inline const kube::Selection kKubeletLeases{{"coordination.k8s.io", "v1", "leases"}, "kube-node-lease"};

// The label or annotation on a Pod, Namespace, StorageClass or Node that says whether to fail over.
inline constexpr char kFailoverKey[] = "lunkeeper.io/failover";
// The annotation on a PersistentVolume that names the nodes which died soon after they mounted it. A person
// removes it to have the volume moved again.
inline constexpr char kMountDeathsKey[] = "lunkeeper.io/mount-deaths";
inline constexpr char kTaintKey[] = "lunkeeper.io/fenced";
inline constexpr char kPluginTaintKey[] = "lunkeeper.io/plugin-not-ready";
// The chart's label on the pods of the driver's node part, with the value "node".
inline constexpr char kPluginLabel[] = "lunkeeper.io/plugin";
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
  std::string owner_kind;  // as Pod's
  Uid owner;
  FailoverPolicy policy = FailoverPolicy::kUnsaid;
  std::vector<std::string> claims;  // "namespace/name"
  bool foreign_volumes = false;     // has volumes that only this node can serve, besides claims
  bool plugin = false;              // the driver's own, of its node part
  bool deleting = false, deleted = false, running = false, crash_looping = false;
  Shared<Labels> labels;
  Resources asks;
  Shared<Scheduling> scheduling;
  friend bool operator==(const PodFacts&, const PodFacts&) = default;
};

// A bound PersistentVolume.
struct VolumeFacts {
  std::string claim;  // "namespace/name"
  VolumeId volume;    // empty: another driver's
  std::string storage_class;
  bool block = false;  // pods see a device, not a file system
  Shared<Scheduling> places = {};
  ChargedNodes charged = {};  // by kMountDeathsKey
  Version version = {};
  Uid claim_uid = {};
  friend bool operator==(const VolumeFacts&, const VolumeFacts&) = default;
};

NodeFacts ReadNode(const kube::Json& node);
// Of the leases that kubelets renew: another text with each renewal.
std::string ReadRenewal(const kube::Json& lease);
// Of the text that ReadRenewal returns; none: it is no time.
std::optional<KubeletTime> RenewalTime(const std::string& renewal);
// Our driver's node id in a CSINode.
std::optional<NodeId> ReadNodeId(const kube::Json& csi_node);
// Its containers will not run again.
bool HasEnded(const kube::Json& pod);
// Nullopt: the pod has no persistent volume, and does not say itself that it is to be moved all the same.
// ReadPod: nor if it has ended; but also of a pod of the driver's node part, which runs in `own_namespace`.
std::optional<PodFacts> ReadAnyPod(const kube::Json& pod);
std::optional<PodFacts> ReadPod(const kube::Json& pod, const std::string& own_namespace = "");
// Of a volume in any phase, with the claim that it has or had last. ReadVolume: nullopt unless it is bound.
VolumeFacts ReadAnyVolume(const kube::Json& persistent_volume);
std::optional<VolumeFacts> ReadVolume(const kube::Json& persistent_volume);
// The value of kMountDeathsKey.
std::string MountDeathsOf(const ChargedNodes& nodes);
// "never" wins over "always", and any other value means "never".
FailoverPolicy ReadFailoverPolicy(const kube::Json& object);

// The value of our taint: the instance alone. A taint's value has at most 63 characters, which a whole node
// id can exceed; the machine's name is that of the tainted Node anyway.
std::string TaintValueOf(const NodeId& node);
// The JSON of a Node's taints with our one of `key` set to `value`; without that one if `value` is empty.
kube::Json WithTaint(const std::string& taints, const std::string& value, const std::string& key = kTaintKey);
// The value of our taint among these; empty: there is none.
std::string TaintIn(const std::string& taints);
PluginTaint PluginTaintIn(const std::string& taints);
// What WithTaint is given for the taint of a silent plugin. A node that was registered with that taint has
// another value, or none.
inline constexpr char kPluginSilent[] = "silent";

}  // namespace lunkeeper::fencing
