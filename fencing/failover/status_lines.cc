#include "fencing/failover/status_lines.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fencing/core/mount_deaths.h"
#include "fencing/core/trace.h"
#include "fencing/failover/facts.h"

// The lines are for people; no program reads them. They show the evidence first and the classification
// second, so that an operator can check the one against the other.
namespace lunkeeper::fencing {
namespace {

std::string ToText(Network network) {
  switch (network) {
    case Network::kNeverArrived:
      return "never heard";
    case Network::kArrives:
      return "heartbeats arrive";
    case Network::kClosed:
      return "its stream was closed";
    case Network::kSilent:
      return "silent";
  }
  return "?";
}

std::string NodeLine(const State& state, const NodeId& node) {
  const Signals signals = state.evidence.SignalsOf(node, state.now);
  const Classification classification = state.ClassifyNode(node);
  std::string line = absl::StrCat("node ", node.value(), ": ",
                                  classification.what.empty() ? "well" : std::string(classification.what),
                                  "; ", ToText(signals.network));
  if (signals.network == Network::kSilent)
    absl::StrAppend(&line, " for ", FormatSeconds(signals.silent_for), " s");
  for (const auto& side : state.evidence.nodes().at(node).arrays)
    if (side.heartbeat)
      absl::StrAppend(&line, "; heartbeat on array ", side.array->id.value(), " ",
                      FormatSeconds(state.now - side.heartbeat->until), " s ago");
  // Why nothing is done about this node, if that was said.
  const auto refused = state.said.find({ReportKind::kRefused, node});
  if (refused != state.said.end()) absl::StrAppend(&line, "; ", refused->second.text);
  return line;
}

// Empty: there is nothing to say.
std::string PluginLine(const State& state, const NodeName& name) {
  const auto* node = state.cluster.FindNode(name);
  const auto said = state.said.find({ReportKind::kPlugin, MachineId(name.value())});
  if (node != nullptr && node->plugin_taint != PluginTaint::kNone)
    return absl::StrCat("node ", name.value(), " takes no new pods: its plugin is silent (taint ",
                        kPluginTaintKey, ")");
  return said == state.said.end() ? "" : absl::StrCat("node ", name.value(), ": ", said->second.text);
}

std::string FenceLine(const NodeFence& fence) {
  const std::string by = fence.requested_by.empty() ? "evidence" : fence.requested_by;
  return absl::StrCat("nodefence ", fence.node.value(), ": ", ToSentence(fence.phase), "; by ", by, ": ",
                      fence.cause, "; ", DescribeVolumes(fence.volumes));
}

// A replica that does not lead holds nothing back, so it cannot say why nothing is done about a node.
std::string WhoLeads(const Core& core) {
  if (core.Leads()) return "this replica leads";
  if (core.Leader().empty()) return "no replica leads";
  return absl::StrCat(core.Leader(), " leads; ask that one why something is not done");
}

}  // namespace

// The order is what an operator asks in turn: who leads, under which limits, which nodes, which fences.
std::vector<std::string> StatusLines(const Core& core, const std::string& missing) {
  const State& state = core.state();
  const Settings& settings = state.settings;
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat(
      WhoLeads(core), missing.empty() ? "" : absl::StrCat("; it does not act: not watched yet: ", missing)));
  lines.push_back(absl::StrCat("budget ", settings.budget_percent, " % of the nodes, then ",
                               settings.one_by_one ? "one by one" : "stop",
                               "; heartbeats may be missing for ", FormatSeconds(settings.silence), " s",
                               settings.paused ? "; PAUSED" : "", settings.dry_run ? "; DRY RUN" : "",
                               settings.opt_in ? "; opt-in" : ""));
  for (const auto& entry : state.evidence.nodes()) lines.push_back(NodeLine(state, entry.first));
  for (const auto& entry : state.plugins)
    if (auto line = PluginLine(state, entry.first); !line.empty()) lines.push_back(std::move(line));
  for (const auto& entry : state.cluster.fences()) lines.push_back(FenceLine(entry.second));
  for (const auto& [volume, nodes] : state.cluster.charged())
    if (state.cluster.IsHeldBack(volume)) lines.push_back(DescribeHeldBack(state, volume));
  return lines;
}

std::string RemovedArrayLine(const std::string& array, const std::vector<VolumeUse>& uses) {
  std::map<NodeName, size_t> left;
  for (const VolumeUse& use : uses) left[use.node] += use.has_device ? 1 : 0;
  std::erase_if(left, [](const auto& entry) { return entry.second == 0; });
  return absl::StrCat("array ", array, " is removed; ",
                      left.empty() ? "no node has anything of it left"
                                   : absl::StrJoin(left, ", ", [](std::string* out, const auto& entry) {
                                       absl::StrAppend(out, "node ", entry.first.value(), " has ",
                                                       entry.second, " volumes of it left");
                                     }));
}

}  // namespace lunkeeper::fencing
