#include "fencing/core/trace.h"

#include <cstdio>

namespace lunkeeper::fencing {
namespace {

constexpr size_t kMostNames = 8;  // a node may have hundreds; the NodeFence has them all

std::string List(const VolumeSet& volumes) {
  std::string text;
  size_t count = 0;
  for (const auto& volume : volumes) {
    if (count++ == kMostNames) return "{" + text + ",… " + std::to_string(volumes.size()) + " volumes}";
    text += (text.empty() ? "" : ",") + volume.value();
  }
  return "{" + text + "}";
}

std::string Line(const WriteLease&) { return "write the lease"; }
std::string Line(const BeginTerm& call) { return "begin a term on " + call.array.value(); }
std::string Line(const Probe& probe) { return "probe " + probe.node.value(); }
std::string Line(const RemoveNodeFence& call) { return "remove the record of " + call.node.value(); }
std::string Line(const Notify& notify) {
  return "tell " + notify.node.value() + " of generation " + std::to_string(notify.fence.generation) +
         " on " + notify.array.value();
}
std::string Line(const Report& report) { return "say of " + report.node.value() + ": " + report.text; }

std::string Line(const PutNodeFence& call) {
  std::string text = "record " + call.fence.node.value() + ": ";
  if (call.fence.version.empty()) text += call.fence.cause + (call.fence.graceful ? " (graceful); " : "; ");
  text += Describe(call.fence.volumes);
  for (const auto& [array, generation] : call.fence.generations)
    text += " " + array.value() + "=" + std::to_string(generation);
  const std::string phase(ToWord(call.fence.phase));
  return phase.empty() ? text : text + "; " + phase;
}

std::string Line(const FenceNode& call) {
  return "fence " + call.node.value() + " on " + call.array.value() + List(call.volumes) + " term " +
         std::to_string(call.term);
}

std::string Line(const UnfenceNode& call) {
  return "unfence " + call.node.value() + " on " + call.array.value() + " generation " +
         std::to_string(call.generation) + " term " + std::to_string(call.term);
}

std::string Line(const SetTaint& call) {
  return call.value.empty() ? "untaint " + call.node.value()
                            : "taint " + call.node.value() + " with " + call.value;
}

std::string Line(const DeletePod& call) {
  const auto* how = call.grace == Grace::kNone ? "delete " : "delete gracefully ";
  return how + call.pod.value() + " uid " + call.uid.value();
}

}  // namespace

std::string Describe(const VolumesByArray& volumes) {
  std::string text;
  for (const auto& [array, some] : volumes) text += (text.empty() ? "" : " ") + array.value() + List(some);
  return text.empty() ? "nothing" : text;
}

std::string Describe(const Action& action) {
  return std::visit([](const auto& what) { return Line(what); }, action.what);
}

std::string Seconds(Span time) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(time.milliseconds() / 1000),
                static_cast<long long>(time.milliseconds() % 1000));
  return text;
}

}  // namespace lunkeeper::fencing
