#include "fencing/sim/object_json.h"

#include "absl/time/time.h"
#include "devices/node_id.h"

namespace lunkeeper::fencing::sim {
namespace {

using kube::Json;

constexpr char kDriver[] = "csi.lunkeeper.io";

constexpr char kForeignClaim[] = "foreign";  // one workload has one

std::string ClaimOf(const VolumeId& volume) { return "claim-" + volume.value(); }

Json ReadyCondition(bool ready, const char* otherwise) {
  return Json::array({{{"type", "Ready"}, {"status", ready ? "True" : otherwise}}});
}

}  // namespace

std::string SpaceOf(const PodId& pod) { return pod.value().substr(0, pod.value().find('/')); }
std::string NameIn(const PodId& pod) { return pod.value().substr(pod.value().find('/') + 1); }

// Without an address the node could not be probed. The simulated network takes the name for one.
Json NodeObject(const Node& node) {
  Json taints = Json::array();
  if (node.out_of_service)
    taints.push_back({{"key", kOutOfServiceTaint}, {"value", "nodeshutdown"}, {"effect", "NoExecute"}});
  if (!node.taint.empty())
    taints.push_back(
        {{"key", kFencedTaint}, {"value", InstanceOf(NodeId(node.taint))}, {"effect", "NoSchedule"}});
  if (node.plugin_taint != PluginTaint::kNone)
    taints.push_back({{"key", kPluginTaint},
                      {"value", node.plugin_taint == PluginTaint::kByLeader ? "silent" : ""},
                      {"effect", "NoSchedule"}});
  return {{"metadata", {{"uid", node.uid.value()}}},
          {"spec", {{"taints", taints}}},
          {"status",
           {{"conditions", ReadyCondition(node.ready, "Unknown")},
            {"addresses", {{{"type", "InternalIP"}, {"address", node.name.value()}}}}}}};
}

Json CsiNodeObject(const Node& node) {
  return {{"metadata", Json::object()},
          {"spec", {{"drivers", {{{"name", kDriver}, {"nodeID", node.node_id.value()}}}}}}};
}

Json OwnerReference(const Pod& pod) {
  return {{"apiVersion", pod.owner_kind == "Job" ? "batch/v1" : "apps/v1"},
          {"kind", pod.owner_kind},
          {"uid", pod.owner.value()},
          {"controller", true}};
}

Json PodObject(const Pod& pod, bool failed) {
  Json metadata = {{"uid", pod.uid.value()}, {"ownerReferences", Json::array({OwnerReference(pod)})}};
  if (pod.policy == FailoverPolicy::kNever) metadata["annotations"] = {{"lunkeeper.io/failover", "never"}};
  if (pod.deleting) {
    metadata["deletionTimestamp"] = "2027-01-15T08:00:00Z";
    metadata["deletionGracePeriodSeconds"] = pod.deleted ? 0 : 30;
  }
  Json volumes = Json::array();
  for (const auto& [array, used] : pod.volumes)
    for (const auto& volume : used)
      volumes.push_back(
          {{"name", volume.value()}, {"persistentVolumeClaim", {{"claimName", ClaimOf(volume)}}}});
  if (pod.foreign_volumes)
    volumes.push_back({{"name", "foreign"}, {"persistentVolumeClaim", {{"claimName", kForeignClaim}}}});
  Json spec = {{"volumes", volumes}};
  if (!pod.node.empty()) spec["nodeName"] = pod.node.value();
  Json status = {{"phase", failed             ? "Failed"
                           : pod.node.empty() ? "Pending"
                                              : "Running"},
                 {"conditions", ReadyCondition(pod.running, "False")}};
  if (pod.crash_looping)
    status["containerStatuses"] = {{{"state", {{"waiting", {{"reason", "CrashLoopBackOff"}}}}}}};
  return {{"metadata", metadata}, {"spec", spec}, {"status", status}};
}

Json VolumeObject(const PodId& pod, const VolumeId& volume, const ChargedNodes& charged) {
  Json metadata = Json::object();
  std::string nodes;
  for (const NodeId& node : charged) nodes += (nodes.empty() ? "" : ",") + node.value();
  if (!nodes.empty()) metadata["annotations"] = {{kMountDeaths, nodes}};
  return {{"metadata", metadata},
          {"spec",
           {{"csi", {{"driver", kDriver}, {"volumeHandle", volume.value()}}},
            {"claimRef", {{"namespace", SpaceOf(pod)}, {"name", ClaimOf(volume)}}}}},
          {"status", {{"phase", "Bound"}}}};
}

Json ForeignObject(const PodId& pod) {
  return {{"metadata", Json::object()},
          {"spec",
           {{"csi", {{"driver", "csi.example.com"}, {"volumeHandle", "foreign"}}},
            {"claimRef", {{"namespace", SpaceOf(pod)}, {"name", kForeignClaim}}}}},
          {"status", {{"phase", "Bound"}}}};
}

Json KubeletLeaseObject(WorldTime renewed, Span clock_error) {
  const Span own = renewed.since_start() + clock_error;
  const absl::Time at = absl::FromUnixSeconds(1'800'000'000) + absl::Milliseconds(own.milliseconds());
  return {{"metadata", Json::object()}, {"spec", {{"renewTime", kube::FormatMicroTime(at)}}}};
}

}  // namespace lunkeeper::fencing::sim
