// Within the budget a failover begins at once. Past it something larger has happened than a node's death, and
// it may be this observer: so it first has to show that it sees the API server, every array and enough of the
// other nodes, and then goes on with one node at a time, so that a person has time to stop it.

#include "fencing/core/safety_limits.h"

#include <algorithm>

namespace lunkeeper::fencing {
namespace {

constexpr int kFewestOfAMass = 3;

}  // namespace

void SafetyLimits::NoteDecision(const NodeId& node, Instant now) { decided_.emplace(node, now); }

// What is plainly dead was its own fault's victim, also if it looked like something else on its way there. A
// plugin that is away alone is an upgrade more often than a fault.
void SafetyLimits::NoteVerdict(const NodeId& node, const Classification& verdict, Instant now) {
  if (verdict.what.empty() || verdict.plugin) return;
  if (verdict.fast) {
    in_trouble_.erase(node);
  } else {
    in_trouble_[node] = now;
  }
}

bool SafetyLimits::IsMass(const Evidence& evidence, Instant now) {
  std::erase_if(in_trouble_, [&](const auto& entry) { return now - entry.second >= settings_.mass_window; });
  const auto counts = [](const NodeId& id, const NodeEvidence& known) {
    const bool current = known.kubelet && (known.kubelet->node_id.empty() || known.kubelet->node_id == id);
    return current && (known.heard || known.HasGrants());
  };
  int nodes = 0, sick = 0;
  for (const auto& [id, known] : evidence.nodes()) {
    if (!counts(id, known)) continue;
    ++nodes;
    sick += in_trouble_.contains(id);
  }
  return sick >= kFewestOfAMass && sick * 100 > nodes * settings_.mass_percent;
}

std::optional<LimitRefusal> SafetyLimits::RefusalOf(const NodeId& node, const Classification& verdict,
                                                    const Cluster& cluster, const Evidence& evidence,
                                                    Instant now) {
  if (settings_.paused) return LimitRefusal{Refusal::kPaused, "failover is paused"};
  const auto* object = cluster.FindNode(NameOf(node));
  if (object && object->exempt) return LimitRefusal{Refusal::kExempt, "the node is exempt"};
  if (!verdict.fast && IsMass(evidence, now))
    return LimitRefusal{Refusal::kMass, "too many nodes are in trouble at once, as if by one fault"};
  std::erase_if(decided_, [&](const auto& entry) { return now - entry.second >= settings_.budget_window; });
  // A node within the budget stays within it: to decide on it again costs nothing.
  if (decided_.contains(node) || static_cast<int>(decided_.size()) < NodeBudget(evidence))
    return std::nullopt;

  const auto over_budget = [](const std::string& why) {
    return LimitRefusal{Refusal::kBudget, "over the budget of nodes" + why};
  };
  auto failed = evidence.ArraysUp() ? SelfTest(node, evidence, now) : "an array does not answer";
  if (!failed.empty()) return over_budget(", and the self-test fails: " + failed);
  if (!settings_.one_by_one) return over_budget("");
  const auto latest = std::max_element(decided_.begin(), decided_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (now - latest->second < settings_.one_by_one_pause) return over_budget(": one at a time");
  return std::nullopt;
}

std::string SafetyLimits::SelfTest(const NodeId& node, const Evidence& evidence, Instant now) const {
  if (!evidence.ApiUp(now)) return "the API server does not answer";
  int others = 0, heard = 0;
  for (const auto& [id, known] : evidence.nodes()) {
    // Nodes that hold nothing and were never heard are no witnesses.
    if (id == node || (!known.HasGrants() && !known.heard)) continue;
    ++others;
    heard += evidence.SignalsOf(id, now).network == Network::kArrives;
  }
  if (heard * 100 < others * settings_.self_test_percent) return "too few of the other nodes are heard";
  return "";
}

int SafetyLimits::NodeBudget(const Evidence& evidence) const {
  const auto nodes = std::count_if(evidence.nodes().begin(), evidence.nodes().end(), [&](const auto& entry) {
    return entry.second.HasGrants() || decided_.contains(entry.first);
  });
  // At least one, or a cluster of four nodes would never fail over at 20 %.
  return std::max(1, static_cast<int>(nodes) * settings_.budget_percent / 100);
}

}  // namespace lunkeeper::fencing
