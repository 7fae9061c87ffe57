// Within the budget a failover begins at once. Past it something larger has happened than a node's death, and
// it may be this observer: so it first has to show that it sees the API server, every array and enough of the
// other nodes, and then goes on with one node at a time, so that a person has time to stop it.

#include "fencing/core/safety_limits.h"

#include <algorithm>
#include <set>

#include "fencing/core/instances.h"

namespace lunkeeper::fencing {
namespace {

constexpr Span kStanding = 600_s;

// A node that counts where a share of all nodes is asked for.
bool IsCurrent(const NodeId& id, const NodeEvidence& node) {
  const bool current = node.kubelet && (node.kubelet->node_id.empty() || node.kubelet->node_id == id);
  return current && (node.heard || node.HasGrants());
}

// Nodes that hold nothing and were never heard are no witnesses. Nor are those of which there is no Node any
// more, and that are known only for a fence which cannot end.
bool IsWitness(const NodeEvidence& node, Span forget, Instant now) {
  return (node.heard || node.HasGrants()) && (node.kubelet || now - LastSignOf(node) < forget);
}

int CountBetween(const std::vector<Instant>& sorted, Instant after, Instant before) {
  const auto first = std::upper_bound(sorted.begin(), sorted.end(), after);
  return static_cast<int>(std::lower_bound(first, sorted.end(), before) - first);
}

}  // namespace

void SafetyLimits::NoteDecision(const NodeId& node, Instant now) {
  if (decided_.emplace(NameOf(node), now).second) latest_decision_ = now;
}

// What is plainly dead was its own fault's victim, also if it looked like something else on its way there. A
// plugin that is away alone is an upgrade more often than a fault. And of a node that was silent before this
// observer came nobody saw the trouble begin, with others or alone. What becomes of a standing trouble is a
// new one, a plugin that is away too: the next of one fault may begin like that.
void SafetyLimits::NoteClassification(const NodeId& node, const Classification& classification, Instant now) {
  const auto known = in_trouble_.find(node);
  const bool turned = known != in_trouble_.end() && IsStanding(known->second, now) &&
                      classification.what != known->second.what;
  if (classification.fast || classification.unmet) {
    if (known != in_trouble_.end()) in_trouble_.erase(known);
  } else if (classification.what.empty()) {
    if (known != in_trouble_.end()) known->second.over = true;
  } else if (!classification.plugin || turned) {
    auto& trouble = known == in_trouble_.end() ? in_trouble_[node] : known->second;
    const bool begins = known == in_trouble_.end() || trouble.over || turned ||
                        (trouble.late_lease && !classification.late_lease);
    trouble = {begins ? now : trouble.began, now, false, classification.late_lease, classification.works,
               classification.what};
  }
}

bool SafetyLimits::IsStanding(const Trouble& trouble, Instant now) {
  return trouble.works && now - trouble.began >= kStanding;
}

// Over the instances in the order of their ids, where those of a machine follow each other. Others may lie
// among them, such as those of "db.e1" among those of "db"; for each of these it counts once more at most.
void SafetyLimits::CountMachines(const Evidence& evidence, Instant now) {
  struct {
    NodeName name;
    bool current = false, witness = false, arrives = false, budgeted = false;
  } machine;
  int budgeted = 0;
  const auto count = [&] {
    counts_.current += machine.current;
    counts_.witnesses += machine.witness;
    counts_.arriving += machine.arrives;
    budgeted += machine.budgeted;
  };
  for (const auto& [id, known] : evidence.nodes()) {
    if (auto name = NameOf(id); name != machine.name) {
      count();
      machine = {std::move(name)};
    }
    machine.current |= IsCurrent(id, known);
    machine.witness |= IsWitness(known, settings_.forget, now);
    machine.arrives |= evidence.Arrives(known, now);
    machine.budgeted |= known.HasGrants() || decided_.contains(machine.name);
  }
  count();
  // At least one, or a cluster of four nodes would never fail over at 20 %.
  counts_.budget = std::max(1, budgeted * settings_.budget_percent / 100);
}

void SafetyLimits::CountNodes(const Cluster& cluster, const Evidence& evidence, Instant now) {
  const auto is_past = [&](Instant at) { return now - at >= settings_.mass_window; };
  std::erase_if(in_trouble_, [&](const auto& entry) { return is_past(entry.second.last); });
  std::erase_if(decided_, [&](const auto& entry) { return now - entry.second >= settings_.budget_window; });
  counts_ = {};
  CountMachines(evidence, now);
  std::set<NodeName> counted;
  for (const auto& [id, trouble] : in_trouble_) {
    const auto known = evidence.nodes().find(id);
    if (known == evidence.nodes().end() || !IsCurrent(id, known->second)) continue;
    // What was begun for it stays a part of what happened then; later it stands in nobody's way.
    if (cluster.FindFence(id) && is_past(trouble.began)) continue;
    if (trouble.late_lease || IsStanding(trouble, now) || !counted.insert(NameOf(id)).second) continue;
    counts_.began.push_back(trouble.began);
  }
  std::sort(counts_.began.begin(), counts_.began.end());
}

// One fault brings many nodes into trouble at about the same time.
bool SafetyLimits::IsMass(const NodeId& node, Instant now) const {
  const auto trouble = in_trouble_.find(node);
  const Instant began = trouble == in_trouble_.end() ? now : trouble->second.began;
  const int sick = CountBetween(counts_.began, began - settings_.mass_window, began + settings_.mass_window);
  return sick >= kFewestOfAMass && sick * 100 > counts_.current * settings_.mass_percent;
}

std::optional<LimitRefusal> SafetyLimits::RefusalOf(const NodeId& node, const Classification& classification,
                                                    const Cluster& cluster, const Evidence& evidence,
                                                    Instant now) {
  if (settings_.paused) return LimitRefusal{Refusal::kPaused, "failover is paused"};
  const auto* object = cluster.FindNode(NameOf(node));
  if (object && object->exempt) return LimitRefusal{Refusal::kExempt, "the node is exempt"};
  if (!classification.fast && !classification.unmet && IsMass(node, now))
    return LimitRefusal{Refusal::kMass, "too many nodes are in trouble at once, as if by one fault"};
  if (classification.unmet && !HearsMost())
    return LimitRefusal{Refusal::kMass, "it was never met, and most of the others are not heard"};
  // Nothing but Kubernetes' word speaks against it, so this observer has to see well itself.
  if (classification.despite_io)
    if (const auto failed = SelfTest(node, evidence, now); !failed.empty())
      return LimitRefusal{Refusal::kBudget,
                          "Kubernetes' word is not enough, as the self-test fails: " + failed};
  // A node within the budget stays within it: to decide on it again costs nothing.
  if (decided_.contains(NameOf(node)) || static_cast<int>(decided_.size()) < counts_.budget)
    return std::nullopt;

  const auto over_budget = [](const std::string& why) {
    return LimitRefusal{Refusal::kBudget, "over the budget of nodes" + why};
  };
  auto failed = evidence.ArraysUp() ? SelfTest(node, evidence, now) : "an array does not answer";
  if (!failed.empty()) return over_budget(", and the self-test fails: " + failed);
  if (!settings_.one_by_one) return over_budget("");
  if (now - latest_decision_ < settings_.one_by_one_pause) return over_budget(": one at a time");
  return std::nullopt;
}

std::string SafetyLimits::SelfTest(const NodeId& node, const Evidence& evidence, Instant now) const {
  if (!evidence.ApiUp(now)) return "the API server does not answer";
  const auto self = InstancesOf(evidence.nodes(), NameOf(node));
  const auto any = [&](const auto& is) { return std::ranges::any_of(self, is); };
  const int others = counts_.witnesses -
                     any([&](const auto* each) { return IsWitness(each->second, settings_.forget, now); });
  const int heard =
      counts_.arriving - any([&](const auto* each) { return evidence.Arrives(each->second, now); });
  if (heard * 100 < others * settings_.self_test_percent) return "too few of the other nodes are heard";
  return "";
}

// An observer that hears half of them is not the reason why it never heard this one.
bool SafetyLimits::HearsMost() const {
  return settings_.mass_percent >= 100 || counts_.arriving * 2 >= counts_.current - 1;
}

}  // namespace lunkeeper::fencing
