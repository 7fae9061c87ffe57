#include "fencing/failover/read_scheduling.h"

#include <optional>
#include <string>

#include "fencing/failover/facts.h"

namespace lunkeeper::fencing {
namespace {

using kube::FieldAt;
using kube::FlagAt;
using kube::Json;
using kube::TextAt;

constexpr char kUnschedulable[] = "node.kubernetes.io/unschedulable";

// Of nodes which are not ready, and so take no pod whatever it tolerates. Nearly every pod has them.
bool IsOfHealth(const std::string& key) {
  return key == "node.kubernetes.io/not-ready" || key == "node.kubernetes.io/unreachable";
}

std::optional<Effect> EffectOf(const Json& json) {
  const std::string effect = TextAt(json, {"effect"});
  if (effect == "NoSchedule") return Effect::kNoSchedule;
  if (effect == "NoExecute") return Effect::kNoExecute;
  return std::nullopt;
}

LabelHash HashIn(const Json& json) { return HashLabel(json.is_string() ? json.get<std::string>() : ""); }

Requirement ReadRequirement(const Json& json, const std::string& key) {
  Requirement asked{HashLabel(key), OperatorOf(TextAt(json, {"operator"})), {}};
  for (const Json& value : FieldAt(json, {"values"})) asked.values.push_back(HashIn(value));
  return asked;
}

Requirements ReadTerm(const Json& json) {
  Requirements term;
  for (const Json& each : FieldAt(json, {"matchExpressions"}))
    term.push_back(ReadRequirement(each, TextAt(each, {"key"})));
  for (const Json& each : FieldAt(json, {"matchFields"}))
    term.push_back(ReadRequirement(each, "." + TextAt(each, {"key"})));
  return term;
}

// One that we do not understand tolerates nothing.
std::optional<Toleration> ReadToleration(const Json& json) {
  const std::string key = TextAt(json, {"key"}), how = TextAt(json, {"operator"}),
                    effect = TextAt(json, {"effect"});
  Toleration toleration;
  toleration.effect = EffectOf(json);
  if ((!effect.empty() && !toleration.effect) || IsOfHealth(key)) return std::nullopt;
  if (!key.empty()) toleration.key = HashLabel(key);
  if (how == "Exists") return toleration;
  if (key.empty() || (!how.empty() && how != "Equal")) return std::nullopt;
  toleration.value = HashLabel(TextAt(json, {"value"}));
  return toleration;
}

}  // namespace

NodeLabels ReadNodeLabels(const Json& node) {
  NodeLabels labels;
  labels.labels.push_back({HashLabel(kNameLabel), HashLabel(TextAt(node, {"metadata", "name"}))});
  for (const auto& label : FieldAt(node, {"metadata", "labels"}).items())
    labels.labels.push_back({HashLabel(label.key()), HashIn(label.value())});
  for (const Json& taint : FieldAt(node, {"spec", "taints"})) {
    const std::string key = TextAt(taint, {"key"});
    const auto effect = EffectOf(taint);
    if (!effect || IsOfHealth(key) || key == kTaintKey || key == kOutOfServiceKey) continue;
    labels.taints.push_back({HashLabel(key), HashLabel(TextAt(taint, {"value"})), *effect});
  }
  if (FlagAt(node, {"spec", "unschedulable"}))
    labels.taints.push_back({HashLabel(kUnschedulable), HashLabel(""), Effect::kNoSchedule});
  return labels;
}

Scheduling ReadScheduling(const Json& pod) {
  Scheduling scheduling;
  for (const auto& asked : FieldAt(pod, {"spec", "nodeSelector"}).items())
    scheduling.selector.push_back({HashLabel(asked.key()), Operator::kIn, {HashIn(asked.value())}});
  for (const Json& term :
       FieldAt(pod, {"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
                     "nodeSelectorTerms"}))
    scheduling.terms.push_back(ReadTerm(term));
  for (const Json& each : FieldAt(pod, {"spec", "tolerations"}))
    if (const auto toleration = ReadToleration(each)) scheduling.tolerations.push_back(*toleration);
  return scheduling;
}

}  // namespace lunkeeper::fencing
