#include "fencing/failover/facts.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/driver.h"
#include "fencing/failover/read_scheduling.h"

// Informers call these functions on their own threads, for each object that arrives. Two rules hold for all:
// an object that makes no sense must never look like a reason to act, and what does not matter to failover is
// left out, so that an update which changes nothing else is dropped by the informer's comparison.
namespace lunkeeper::fencing {
namespace {

using kube::FieldAt;
using kube::FlagAt;
using kube::Json;
using kube::NumberAt;
using kube::TextAt;

// kubelet's default, for a Node that does not name its port.
constexpr uint16_t kKubeletPort = 10250;

// Unknown, which the node lifecycle controller sets for a silent kubelet, counts as not true.
bool HasCondition(const Json& object, const std::string& type) {
  const Json& conditions = FieldAt(object, {"status", "conditions"});
  return std::any_of(conditions.begin(), conditions.end(), [&](const Json& each) {
    return TextAt(each, {"type"}) == type && TextAt(each, {"status"}) == "True";
  });
}

// A typing error in the value must not move a pod that somebody wanted to stay, so it means "never".
FailoverPolicy FailoverPolicyIn(const Json& map) {
  if (!map.is_object() || !map.contains(kFailoverKey)) return FailoverPolicy::kUnsaid;
  return map[kFailoverKey] == "always" ? FailoverPolicy::kAlways : FailoverPolicy::kNever;
}

// Kinds of volumes that a pod finds again on another node, or whose loss it accepts anyway (emptyDir). Every
// other kind counts as foreign storage, which Lunkeeper cannot fence; such a pod is left alone.
bool IsAvailableAnywhere(const std::string& source) {
  static const std::set<std::string> kKinds = {
      "configMap", "secret", "downwardAPI", "projected", "emptyDir",  "hostPath",
      "gitRepo",   "image",  "nfs",         "csi",       "ephemeral", "persistentVolumeClaim"};
  return kKinds.contains(source);
}

// The kubelet reports the back-off between restarts as a waiting reason; there is no field for it.
bool IsCrashLooping(const Json& pod) {
  for (const char* kind : {"containerStatuses", "initContainerStatuses"})
    for (const Json& container : FieldAt(pod, {"status", kind}))
      if (TextAt(container, {"state", "waiting", "reason"}) == "CrashLoopBackOff") return true;
  return false;
}

// The owner that replaces the pod when it is deleted. A pod without one would be lost.
const Json& ControllerOf(const Json& object) {
  static const Json kNobody = Json::object();
  for (const Json& owner : FieldAt(object, {"metadata", "ownerReferences"}))
    if (FlagAt(owner, {"controller"})) return owner;
  return kNobody;
}

// With its API group. The core group has no name: its kinds stand alone.
std::string KindOf(const Json& owner) {
  const std::string kind = TextAt(owner, {"kind"}), version = TextAt(owner, {"apiVersion"});
  const size_t slash = version.find('/');
  return slash == std::string::npos ? kind : absl::StrCat(kind, ".", version.substr(0, slash));
}

// A mirror pod: kubelet mounts no claim for it. NodeRestriction keeps a node from naming a claim in one, but
// not from an ephemeral volume, whose claim would be any one that is called after the pod and the volume.
bool IsMadeByNode(const Json& pod) {
  return KindOf(ControllerOf(pod)) == "Node" ||
         !TextAt(pod, {"metadata", "annotations", "kubernetes.io/config.mirror"}).empty();
}

void ReadVolumes(const Json& pod, PodFacts& facts) {
  facts.foreign_volumes = IsMadeByNode(pod);
  if (facts.foreign_volumes) return;
  const std::string space = TextAt(pod, {"metadata", "namespace"});
  for (const Json& volume : FieldAt(pod, {"spec", "volumes"})) {
    if (!volume.is_object()) continue;
    const std::string claim = TextAt(volume, {"persistentVolumeClaim", "claimName"});
    if (!claim.empty()) facts.claims.push_back(absl::StrCat(space, "/", claim));
    // A generic ephemeral volume's claim is called after its pod.
    if (volume.contains("ephemeral"))
      facts.claims.push_back(
          absl::StrCat(space, "/", TextAt(pod, {"metadata", "name"}), "-", TextAt(volume, {"name"})));
    for (const auto& entry : volume.items())
      if (entry.key() != "name" && !IsAvailableAnywhere(entry.key())) facts.foreign_volumes = true;
  }
}

bool HasTaint(const Json& taints, const std::string& key) {
  return std::any_of(taints.begin(), taints.end(),
                     [&](const Json& taint) { return TextAt(taint, {"key"}) == key; });
}

// In another namespace anybody could set it. A well-known label does not tell: pods of other charts are a
// component "node", too.
bool IsPlugin(const Json& pod, const std::string& own_namespace) {
  return !own_namespace.empty() && TextAt(pod, {"metadata", "namespace"}) == own_namespace &&
         TextAt(pod, {"metadata", "labels", kPluginLabel}) == "node";
}

// Only where it is matters: whether it runs, its heartbeats show.
PodFacts ReadPlugin(const Json& pod) {
  PodFacts facts;
  facts.plugin = true;
  facts.uid = Uid(TextAt(pod, {"metadata", "uid"}));
  facts.node = NodeName(TextAt(pod, {"spec", "nodeName"}));
  return facts;
}

Json ParseTaints(const std::string& taints) {
  return taints.empty() ? Json::array() : kube::ParseJson(taints).value_or(Json::array());
}

}  // namespace

NodeFacts ReadNode(const Json& node) {
  NodeFacts facts;
  facts.uid = Uid(TextAt(node, {"metadata", "uid"}));
  facts.version = Version(TextAt(node, {"metadata", "resourceVersion"}));
  facts.ready = HasCondition(node, "Ready");
  facts.exempt = ReadFailoverPolicy(node) == FailoverPolicy::kNever;
  const Json& taints = FieldAt(node, {"spec", "taints"});
  facts.out_of_service = HasTaint(taints, kOutOfServiceKey);
  // Kept as text, because a patch must write back the whole list: a merge patch replaces lists as a whole.
  if (!taints.empty()) facts.taints = kube::ToText(taints);
  for (const Json& address : FieldAt(node, {"status", "addresses"}))
    if (facts.address.empty() && TextAt(address, {"type"}) == "InternalIP")
      facts.address = TextAt(address, {"address"});
  const int64_t port = NumberAt(node, {"status", "daemonEndpoints", "kubeletEndpoint", "Port"});
  facts.kubelet_port = port > 0 && port <= 65535 ? static_cast<uint16_t>(port) : kKubeletPort;
  facts.labels = Shared<NodeLabels>(ReadNodeLabels(node));
  return facts;
}

std::string ReadRenewal(const Json& lease) { return TextAt(lease, {"spec", "renewTime"}); }

// A kubelet writes microseconds, and a failover needs seconds. Whose clock it is matters: it is the
// machine's, which may be wrong by any amount, so nobody may compare it with a time of ours. The core only
// takes the distance of two renewals of the same kubelet.
std::optional<KubeletTime> RenewalTime(const std::string& renewal) {
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, renewal, &time, nullptr)) return std::nullopt;
  return KubeletTime(Span::OfMilliseconds(absl::ToUnixMillis(time)));
}

// The node's own kubelet writes it, and could name another machine, which would be fenced in its place.
std::optional<NodeId> ReadNodeId(const Json& csi_node) {
  for (const Json& driver : FieldAt(csi_node, {"spec", "drivers"})) {
    const NodeId node(TextAt(driver, {"nodeID"}));
    if (TextAt(driver, {"name"}) == kDriverName && IsNodeId(node.value()) &&
        MachineOf(node) == TextAt(csi_node, {"metadata", "name"}))
      return node;
  }
  return std::nullopt;
}

bool HasEnded(const Json& pod) {
  const std::string phase = TextAt(pod, {"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

std::optional<PodFacts> ReadPod(const Json& pod, const std::string& own_namespace) {
  if (HasEnded(pod)) return std::nullopt;
  // One with a claim is moved or left like any other, whatever its labels say.
  if (auto facts = ReadAnyPod(pod)) return facts;
  if (IsPlugin(pod, own_namespace)) return ReadPlugin(pod);
  return std::nullopt;
}

std::optional<PodFacts> ReadAnyPod(const Json& pod) {
  PodFacts facts;
  ReadVolumes(pod, facts);
  facts.policy = ReadFailoverPolicy(pod);
  // By its own word alone, as there may be any number of them.
  if (facts.claims.empty() && facts.policy != FailoverPolicy::kAlways) return std::nullopt;
  facts.uid = Uid(TextAt(pod, {"metadata", "uid"}));
  facts.node = NodeName(TextAt(pod, {"spec", "nodeName"}));
  facts.owner_kind = KindOf(ControllerOf(pod));
  facts.owner = Uid(TextAt(ControllerOf(pod), {"uid"}));
  facts.deleting = !FieldAt(pod, {"metadata", "deletionTimestamp"}).is_null();
  // Zero: by force, or kubelet's own last word. Only a finalizer keeps such an object.
  const Json& grace = FieldAt(pod, {"metadata", "deletionGracePeriodSeconds"});
  facts.deleted = facts.deleting && grace.is_number() && grace == 0;
  // A pod that is being deleted may be ready until its end; it will not run here for long.
  facts.running = HasCondition(pod, "Ready") && !facts.deleting;
  facts.crash_looping = IsCrashLooping(pod);
  facts.labels = Shared<Labels>(ReadLabels(pod));
  facts.asks = ReadRequests(pod);
  facts.scheduling = Shared<Scheduling>(ReadScheduling(pod));
  return facts;
}

std::string MountDeathsOf(const ChargedNodes& nodes) {
  return absl::StrJoin(nodes, ",", [](std::string* to, const NodeId& node) { to->append(node.value()); });
}

// Only a bound volume belongs to a claim; a released one may keep the reference to a claim that is gone.
std::optional<VolumeFacts> ReadVolume(const Json& volume) {
  if (TextAt(volume, {"status", "phase"}) != "Bound") return std::nullopt;
  return ReadAnyVolume(volume);
}

VolumeFacts ReadAnyVolume(const Json& volume) {
  VolumeFacts facts;
  facts.claim = absl::StrCat(TextAt(volume, {"spec", "claimRef", "namespace"}), "/",
                             TextAt(volume, {"spec", "claimRef", "name"}));
  if (TextAt(volume, {"spec", "csi", "driver"}) == kDriverName)
    facts.volume = VolumeId(TextAt(volume, {"spec", "csi", "volumeHandle"}));
  facts.storage_class = TextAt(volume, {"spec", "storageClassName"});
  facts.block = TextAt(volume, {"spec", "volumeMode"}) == "Block";
  facts.places = Shared<Scheduling>(ReadPlaces(volume));
  for (const auto node : absl::StrSplit(TextAt(volume, {"metadata", "annotations", kMountDeathsKey}), ',',
                                        absl::SkipWhitespace()))
    facts.charged.emplace_back(std::string(absl::StripAsciiWhitespace(node)));
  facts.version = Version(TextAt(volume, {"metadata", "resourceVersion"}));
  facts.claim_uid = Uid(TextAt(volume, {"spec", "claimRef", "uid"}));
  return facts;
}

FailoverPolicy ReadFailoverPolicy(const Json& object) {
  const FailoverPolicy label = FailoverPolicyIn(FieldAt(object, {"metadata", "labels"}));
  const FailoverPolicy note = FailoverPolicyIn(FieldAt(object, {"metadata", "annotations"}));
  if (label == FailoverPolicy::kNever || note == FailoverPolicy::kNever) return FailoverPolicy::kNever;
  return label == FailoverPolicy::kUnsaid ? note : label;
}

std::string TaintValueOf(const NodeId& node) { return InstanceOf(node); }

// NoSchedule and not NoExecute: Lunkeeper deletes the right pods itself, and leaves the others running.
Json WithTaint(const std::string& taints, const std::string& value, const std::string& key) {
  Json result = Json::array();
  for (const Json& taint : ParseTaints(taints))
    if (TextAt(taint, {"key"}) != key) result.push_back(taint);
  if (!value.empty()) result.push_back({{"key", key}, {"value", value}, {"effect", "NoSchedule"}});
  return result;
}

std::string TaintIn(const std::string& taints) {
  for (const Json& taint : ParseTaints(taints))
    if (TextAt(taint, {"key"}) == kTaintKey) return TextAt(taint, {"value"});
  return "";
}

PluginTaint PluginTaintIn(const std::string& taints) {
  for (const Json& taint : ParseTaints(taints))
    if (TextAt(taint, {"key"}) == kPluginTaintKey)
      return TextAt(taint, {"value"}) == kPluginSilent ? PluginTaint::kByLeader : PluginTaint::kAtStart;
  return PluginTaint::kNone;
}

}  // namespace lunkeeper::fencing
