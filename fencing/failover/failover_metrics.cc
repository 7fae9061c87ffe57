#include "fencing/failover/failover_metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

// Computed from scratch for each scrape, on the loop's thread, in one pass over all nodes. Keeping counters
// current instead would touch every place that changes evidence.
namespace lunkeeper::fencing {
namespace {

// The label values of the metric. Alerts use them, so they change with the documentation only.
const char* StateName(Network network) {
  switch (network) {
    case Network::kNeverArrived:
      return "never heard";
    case Network::kArrives:
      return "arrives";
    case Network::kClosed:
      return "closed";
    case Network::kSilent:
      return "silent";
  }
  return "?";
}

const char* StateName(Storage storage) {
  switch (storage) {
    case Storage::kUnknown:
      return "unknown";
    case Storage::kAlive:
      return "alive";
    case Storage::kSilent:
      return "silent";
  }
  return "?";
}

const char* StateName(Kernel kernel) {
  switch (kernel) {
    case Kernel::kUnknown:
      return "unknown";
    case Kernel::kAnswers:
      return "answers";
    case Kernel::kUnanswered:
      return "silent";
  }
  return "?";
}

const char* StateName(Kubelet kubelet) {
  switch (kubelet) {
    case Kubelet::kUnknown:
      return "unknown";
    case Kubelet::kReady:
      return "ready";
    case Kubelet::kNotReady:
      return "not ready";
  }
  return "?";
}

// The age of the oldest "last heartbeat" per channel, over all nodes that exist and have no NodeFence: a node
// that is being failed over is silent for a known reason and would hide a new problem.
struct Ages {
  Span network, storage;

  void Add(const NodeEvidence& node, Instant now) {
    if (node.heartbeat_at) network = std::max(network, now - *node.heartbeat_at);
    for (const auto& side : node.arrays)
      if (side.heartbeat) storage = std::max(storage, now - side.heartbeat->until);
  }
};

// How many nodes a channel shows in each of its states.
template <class State>
using Counts = std::map<State, int>;

template <class State>
void PutCounts(const char* channel, const Counts<State>& counts, Metrics::Series& series) {
  for (const auto& [state, count] : counts)
    series[{{"channel", channel}, {"state", StateName(state)}}] = count;
}

double ToSeconds(Span time) { return static_cast<double>(time.milliseconds()) / 1000; }

double CountHeldBack(const State& state) {
  const auto count = std::count_if(state.said.begin(), state.said.end(), [](const auto& report) {
    return report.second.refusal && IsLimit(*report.second.refusal);
  });
  return static_cast<double>(count);
}

double CountPluginTaints(const State& state) {
  const auto count = std::ranges::count_if(
      state.cluster.nodes(), [](const auto& node) { return node.second.plugin_taint != PluginTaint::kNone; });
  return static_cast<double>(count);
}

void ReportWhatIsNotDone(const State& state, Metrics& metrics) {
  metrics.SetGauge(
      "lunkeeper_failover_unseen_arrays",
      "Configured arrays that this replica cannot look at, or that give a leader no term; if it leads, "
      "nothing on them is moved",
      static_cast<double>(state.UnseenArrays().size() + state.TermlessArrays().size()));
  metrics.SetGauge(
      "lunkeeper_failover_unseen_grants",
      "Grants of which this replica does not see whether they are used, as a part of their array "
      "does not answer",
      static_cast<double>(state.evidence.CountUnseenGrants()));
  metrics.SetGauge("lunkeeper_failover_plugin_tainted_nodes",
                   "Nodes that take no new pods, as their plugin is silent or has not come yet",
                   CountPluginTaints(state));
  metrics.SetGauge("lunkeeper_failover_paused",
                   "Whether nothing is begun on evidence, as failover is paused or a dry run",
                   state.settings.paused || state.settings.dry_run);
}

}  // namespace

void ReportFailoverMetrics(const State& state, Metrics& metrics) {
  Metrics::Series evidence, classifications, fences;
  Counts<Network> network;
  Counts<Storage> storage;
  Counts<Kernel> kernel;
  Counts<Kubelet> kubelet;
  std::map<std::string_view, int> classified;
  Ages ages;
  for (const auto& [node, known] : state.evidence.nodes()) {
    // Nodes that were deleted, and instances that another has replaced, would be counted as silent for ever.
    if (state.cluster.FindNode(NameOf(node)) == nullptr || !state.IsCurrent(node)) continue;
    const Signals signals = state.evidence.SignalsOf(node, state.now);
    ++network[signals.network];
    ++storage[signals.storage];
    ++kernel[signals.kernel];
    ++kubelet[signals.kubelet];
    ++classified[Classify(signals, state.settings).what];
    if (state.cluster.FindFence(node) == nullptr) ages.Add(known, state.now);
  }
  const auto& charged = state.cluster.charged();
  const auto held_back = std::count_if(charged.begin(), charged.end(), [&](const auto& entry) {
    return state.cluster.IsHeldBack(entry.first);
  });
  metrics.SetGauge("lunkeeper_failover_volumes_held_back",
                   "Volumes that are not moved any more, as nodes died soon after they mounted them",
                   static_cast<double>(held_back));
  PutCounts("network", network, evidence);
  PutCounts("storage", storage, evidence);
  PutCounts("kernel", kernel, evidence);
  PutCounts("kubelet", kubelet, evidence);
  // A healthy node has an empty classification, which would be a label that looks missing.
  for (const auto& [what, count] : classified)
    classifications[{{"classification", what.empty() ? "well" : std::string(what)}}] = count;
  for (const auto& entry : state.cluster.fences())
    ++fences[{{"phase", std::string(ToWord(entry.second.phase))}}];
  metrics.SetGauge("lunkeeper_failover_evidence_nodes", "Nodes by what each channel of evidence shows",
                   evidence);
  metrics.SetGauge("lunkeeper_failover_classified_nodes", "Nodes by what they are classified as",
                   classifications);
  metrics.SetGauge("lunkeeper_failover_held_back_nodes",
                   "Nodes whose failover a limit holds back now; lunkeeper status says why",
                   CountHeldBack(state));
  ReportWhatIsNotDone(state, metrics);
  metrics.SetGauge("lunkeeper_failover_nodefences", "NodeFences by how far they have come", fences);
  metrics.SetGauge("lunkeeper_failover_oldest_heartbeat_seconds",
                   "Age of the oldest of the nodes' last heartbeats, without fenced nodes",
                   ToSeconds(ages.network));
  metrics.SetGauge("lunkeeper_failover_oldest_storage_heartbeat_seconds",
                   "The same of the heartbeats that nodes write to the arrays", ToSeconds(ages.storage));
}

}  // namespace lunkeeper::fencing
