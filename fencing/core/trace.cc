// Golden scenarios compare these lines, so that a change of words in here changes them all.

#include "fencing/core/trace.h"

#include <cstdio>

namespace lunkeeper::fencing {
namespace {

constexpr size_t kMostNames = 8;  // a node may have hundreds; the NodeFence has them all

std::string ListVolumes(const VolumeSet& volumes) {
  std::string text;
  size_t count = 0;
  for (const auto& volume : volumes) {
    if (count++ == kMostNames) return "{" + text + ",… " + std::to_string(volumes.size()) + " volumes}";
    text += (text.empty() ? "" : ",") + volume.value();
  }
  return "{" + text + "}";
}

std::string LineOf(const WriteLease& call) { return call.release ? "give the lease up" : "write the lease"; }
std::string LineOf(const BeginTerm& call) { return "begin a term on " + call.array.value(); }
std::string LineOf(const Probe& probe) { return "probe " + probe.node.value(); }
std::string LineOf(const ProbePortals& probe) {
  return "probe the portals of " + probe.array.value() + ", as of " + probe.node.value();
}
std::string LineOf(const ReadKubelet& call) { return "read the kubelet of " + call.node.value(); }
std::string LineOf(const AskReplicas& call) {
  return call.node.empty() ? "ask the replicas what they see" : "ask the replicas for " + call.node.value();
}
std::string LineOf(const RemoveNodeFence& call) { return "remove the record of " + call.node.value(); }
std::string LineOf(const Notify& notify) {
  return "tell " + notify.node.value() + " of generation " + std::to_string(notify.fence.generation) +
         " on " + notify.array.value();
}
std::string LineOf(const ChargeVolume& call) {
  std::string text = "charge " + call.volume.value() + " with";
  for (const auto& node : call.nodes) text += " " + node.value();
  return call.nodes.empty() ? text + " nothing" : text;
}
std::string LineOf(const Report& report) {
  return report.node.empty() ? "say: " + report.text : "say of " + report.node.value() + ": " + report.text;
}

std::string LineOf(const PutNodeFence& call) {
  std::string text = "record " + call.fence.node.value() + ": ";
  if (call.fence.version.empty()) text += call.fence.cause + (call.fence.graceful ? " (graceful); " : "; ");
  text += DescribeVolumes(call.fence.volumes);
  for (const auto& [array, generation] : call.fence.generations)
    text += " " + array.value() + "=" + std::to_string(generation);
  for (const auto& array : call.fence.unasked) text += " " + array.value() + " unasked";
  const std::string phase(ToWord(call.fence.phase));
  return phase.empty() ? text : text + "; " + phase;
}

std::string LineOf(const FenceNode& call) {
  return "fence " + call.node.value() + " on " + call.array.value() + ListVolumes(call.volumes) + " term " +
         std::to_string(call.term);
}

std::string LineOf(const UnfenceNode& call) {
  return "unfence " + call.node.value() + " on " + call.array.value() + " generation " +
         std::to_string(call.generation) + " term " + std::to_string(call.term);
}

std::string LineOf(const SetTaint& call) {
  if (call.taint == OurTaint::kPluginNotReady)
    return (call.value.empty() ? "untaint " : "taint ") + call.node.value() + ": its plugin";
  return call.value.empty() ? "untaint " + call.node.value()
                            : "taint " + call.node.value() + " with " + call.value;
}

std::string LineOf(const DeletePod& call) {
  const auto* how = call.grace == Grace::kNone ? "delete " : "delete gracefully ";
  return how + call.pod.value() + " uid " + call.uid.value();
}

}  // namespace

std::string DescribeVolumes(const VolumesByArray& volumes) {
  std::string text;
  for (const auto& [array, some] : volumes)
    text += (text.empty() ? "" : " ") + array.value() + ListVolumes(some);
  return text.empty() ? "nothing" : text;
}

std::string DescribeAction(const Action& action) {
  return std::visit([](const auto& what) { return LineOf(what); }, action.what);
}

std::string FormatSeconds(Span time) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(time.milliseconds() / 1000),
                static_cast<long long>(time.milliseconds() % 1000));
  return text;
}

}  // namespace lunkeeper::fencing
