// What becomes of a node, at each tick:
//
//   a controller hears its plugin, and kubelet has the driver ─────► any taint of this kind goes
//   it is silent, its kubelet is well, Settings::plugin_not_ready ─► a leader puts the taint
//   no plugin is meant to be there, switched off, exempt ──────────► the taint goes, if a leader put it
//   anything else ─────────────────────────────────────────────────► all stays as it is
//
// What an array hears counts like what a controller hears. A node whose kubelet is not ready takes no pods
// anyway, and one that is fenced has that taint. The time begins anew when this replica did not lead, or was
// stalled.

#include "fencing/core/plugin_taint.h"

#include <algorithm>

#include "fencing/core/instances.h"
#include "fencing/core/places.h"

namespace lunkeeper::fencing {
namespace {

constexpr Span kAskEvery = 5_s;
constexpr int kRefused = 4;          // in a row, in some seconds; fewer may be an API server that restarts
constexpr Span kUnwantedFor = 10_s;  // while one pod of the plugin follows another, none may be there

// At this tick.
struct Plugins {
  int wanted = 0, silent = 0;
};

// kubelet has the driver, or a pod of the plugin is there that may not run.
bool IsWanted(const State& state, const Node& node) {
  if (!node.node_id.empty()) return true;
  const auto& pods = state.cluster.PodsOn(node.name);
  return std::any_of(pods.begin(), pods.end(), [](const Pod* pod) { return pod->plugin; });
}

// By which other replicas may know it; empty: nobody heard it here.
NodeId LatestIdOf(const State& state, const Node& node) {
  if (!node.node_id.empty()) return node.node_id;
  const auto instances = InstancesOf(state.evidence.nodes(), node.name);
  const auto latest = std::max_element(instances.begin(), instances.end(), [](const auto* a, const auto* b) {
    return LastSignOf(a->second) < LastSignOf(b->second);
  });
  return latest == instances.end() ? NodeId() : (*latest)->first;
}

bool IsKubeletWell(const State& state, const Node& node) {
  const NodeId id = node.node_id.empty() ? MachineId(node.name.value()) : node.node_id;
  return state.evidence.SignalsOf(id, state.now).kubelet == Kubelet::kReady;
}

void ForgetNode(State& state, const NodeName& name) {
  if (state.plugins.erase(name) != 0) state.WithdrawReport(ReportKind::kPlugin, MachineId(name.value()));
}

void NoteSince(std::optional<Instant>& since, bool is, Instant now) {
  if (!is) return since.reset();
  if (!since) since = now;
}

void LookAtNode(State& state, const Node& node, Plugins& plugins) {
  const bool wanted = IsWanted(state, node), heard = state.evidence.HearsPlugin(node, state.now);
  plugins.wanted += wanted;
  if (node.plugin_taint == PluginTaint::kNone && (heard || !wanted)) return ForgetNode(state, node.name);
  auto& watch = state.plugins[node.name];
  if (watch.uid != node.uid || state.now - watch.looked_at > state.settings.stall) watch = {node.uid};
  watch.looked_at = state.now;
  const bool silent = wanted && !heard && IsKubeletWell(state, node);
  NoteSince(watch.silent_since, silent, state.now);
  NoteSince(watch.unwanted_since, !wanted, state.now);
  plugins.silent += silent;
}

bool HaveVotes(const State& state, const PluginWatch& watch) {
  return watch.votes_at && state.now - *watch.votes_at < 2 * kAskEvery;
}

// Also while it is tainted: its heartbeats may reach another replica alone.
void AskReplicasFor(State& state, const NodeId& node, const PluginWatch& watch) {
  if (node.empty() || (watch.votes_at && state.now - *watch.votes_at < kAskEvery)) return;
  const CallKey key{.kind = CallKey::Kind::kAskReplicas, .node = node};
  state.outbox.CallOnce(key, AskReplicas{node, state.now}, state.now);
}

// Another node takes pods now, and at least the pods that this one would take.
bool HasSubstitute(const State& state, const Node& node) {
  const auto& kept_off = node.labels->taints;
  const auto& nodes = state.cluster.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& entry) {
    const Node& other = entry.second;
    return other.name != node.name && TakesPods(other) && state.evidence.HearsPlugin(other, state.now) &&
           std::ranges::all_of(other.labels->taints,
                               [&](const Taint& taint) { return std::ranges::count(kept_off, taint) > 0; });
  });
}

// What shows that it may be this observer's fault, or forbids to act; empty: nothing.
std::string WhyNotTainted(const State& state, const Node& object, const NodeId& node,
                          const PluginWatch& watch, const Plugins& plugins) {
  if (watch.heard_elsewhere) return "its heartbeats reach another controller";
  if (state.settings.paused) return "failover is paused";
  if (plugins.silent >= kFewestOfAMass && plugins.silent * 100 > plugins.wanted * state.settings.mass_percent)
    return "too many plugins are silent at once, as if by one fault";
  if (auto failed = state.limits.SelfTest(node, state.evidence, state.now); !failed.empty()) return failed;
  // Nobody gains by the taint then, and all pods of the cluster would wait, such as its DNS, by which plugins
  // find the controllers.
  return HasSubstitute(state, object) ? "" : "no other node's plugin is heard that could take a pod";
}

void SetPluginTaint(State& state, const Node& node, const std::string& value) {
  state.outbox.CallOnce(CallKey::ForPluginTaintOf(node.name),
                        SetTaint{node.name, node.version, value, OurTaint::kPluginNotReady}, state.now);
}

// The recorder's log has the API server's answer.
std::string WhatIsRefused(const PluginWatch& watch, const std::string& text) {
  return watch.refused < kRefused ? "" : text + ": the API server refuses that, as a controller's log says";
}

void PutTaint(State& state, const Node& node, const PluginWatch& watch, const Plugins& plugins) {
  const NodeId machine = MachineId(node.name.value()), id = LatestIdOf(state, node);
  const bool fenced = !node.taint.empty() || !InstancesOf(state.cluster.fences(), node.name).empty();
  const bool due = watch.silent_since && state.now - *watch.silent_since >= state.settings.plugin_not_ready;
  if (!due || fenced || node.exempt || state.settings.plugin_not_ready == Span())
    return state.WithdrawReport(ReportKind::kPlugin, machine);
  AskReplicasFor(state, id, watch);
  if (!id.empty() && !HaveVotes(state, watch)) return;
  const auto why = WhyNotTainted(state, node, id, watch, plugins);
  const bool put = why.empty() && !state.settings.dry_run;
  const std::string text = !why.empty() ? "its plugin is silent, and it is not tainted: " + why
                           : put        ? WhatIsRefused(watch, "its plugin is silent, and it is not tainted")
                                        : "dry run: would be tainted, as its plugin is silent";
  state.ReportOnce({.kind = ReportKind::kPlugin, .node = machine, .text = text});
  if (put) SetPluginTaint(state, node, "silent");
}

void RemoveTaint(State& state, const Node& node, const PluginWatch& watch) {
  if (watch.silent_since) AskReplicasFor(state, LatestIdOf(state, node), watch);
  const bool heard =
      state.evidence.HearsPlugin(node, state.now) || (watch.heard_elsewhere && HaveVotes(state, watch));
  const bool unwanted = watch.unwanted_since && state.now - *watch.unwanted_since >= kUnwantedFor;
  const bool withdrawn = unwanted || node.exempt || state.settings.plugin_not_ready == Span();
  const bool remove =
      (heard && !node.node_id.empty()) || (withdrawn && node.plugin_taint == PluginTaint::kByLeader);
  if (remove) SetPluginTaint(state, node, "");
  state.ReportOnce(
      {.kind = ReportKind::kPlugin,
       .node = MachineId(node.name.value()),
       .text = remove ? WhatIsRefused(watch, "the taint of its silent plugin is to go, and stays") : ""});
}

}  // namespace

void TendPluginTaints(State& state) {
  std::vector<NodeName> gone;
  for (const auto& entry : state.plugins)
    if (!state.cluster.FindNode(entry.first)) gone.push_back(entry.first);
  for (const auto& name : gone) ForgetNode(state, name);
  Plugins plugins;
  for (const auto& entry : state.cluster.nodes()) LookAtNode(state, entry.second, plugins);
  for (const auto& [name, watch] : state.plugins) {
    const auto& node = *state.cluster.FindNode(name);
    node.plugin_taint == PluginTaint::kNone ? PutTaint(state, node, watch, plugins)
                                            : RemoveTaint(state, node, watch);
  }
}

void NotePluginVotes(State& state, const AskReplicas& call, const ReplicaVotes& votes) {
  const auto watch = state.plugins.find(NameOf(call.node));
  if (watch == state.plugins.end()) return;
  watch->second.votes_at = state.now;
  watch->second.heard_elsewhere = !votes.heard_by.empty();
}

void NotePluginTaint(State& state, const SetTaint& call, Outcome outcome) {
  const auto watch = state.plugins.find(call.node);
  if (call.taint != OurTaint::kPluginNotReady || watch == state.plugins.end()) return;
  if (outcome == Outcome::kOk) watch->second.refused = 0;
  if (outcome == Outcome::kFailed) ++watch->second.refused;
}

}  // namespace lunkeeper::fencing
