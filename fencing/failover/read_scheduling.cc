#include "fencing/failover/read_scheduling.h"

#include <optional>
#include <string>

#include "fencing/failover/facts.h"

// The fields are those of Kubernetes' "Assigning Pods to Nodes" and "Taints and Tolerations". Preferred
// affinity is not read, nor pod affinity but for one case: failover only asks whether some node could take
// the pod, and leaves the choice to the scheduler. Strings become label hashes, which are quick to compare
// and small.
namespace lunkeeper::fencing {
namespace {

using kube::FieldAt;
using kube::FlagAt;
using kube::Json;
using kube::TextAt;

constexpr char kHostLabel[] = "kubernetes.io/hostname";
constexpr char kUnschedulable[] = "node.kubernetes.io/unschedulable";

// Taints of nodes that are not ready, which take no pod whatever it tolerates. Kubernetes adds tolerations of
// both to nearly every pod, so dropping them lets pods share one Scheduling.
bool IsOfHealth(const std::string& key) {
  return key == "node.kubernetes.io/not-ready" || key == "node.kubernetes.io/unreachable";
}

// PreferNoSchedule keeps no pod out, so it is not a taint to us.
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

// matchFields selects by fields of the Node instead of labels. The dot before the key keeps the two apart; a
// label key cannot begin with one.
Requirements ReadTerm(const Json& json) {
  Requirements term;
  for (const Json& each : FieldAt(json, {"matchExpressions"}))
    term.push_back(ReadRequirement(each, TextAt(each, {"key"})));
  for (const Json& each : FieldAt(json, {"matchFields"}))
    term.push_back(ReadRequirement(each, "." + TextAt(each, {"key"})));
  return term;
}

// Nullopt: the toleration has a form that is not understood, and so tolerates nothing.
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

bool Selects(const Json& selector, const Json& labels) {
  Scheduling asked;
  NodeLabels has;
  for (const auto& each : FieldAt(selector, {"matchLabels"}).items())
    asked.selector.push_back({HashLabel(each.key()), Operator::kIn, {HashIn(each.value())}});
  for (const Json& each : FieldAt(selector, {"matchExpressions"}))
    asked.selector.push_back(ReadRequirement(each, TextAt(each, {"key"})));
  for (const auto& label : labels.items())
    has.labels.push_back({HashLabel(label.key()), HashIn(label.value())});
  return Fits(asked, has);
}

// Replicas of one set that keep apart have one selector, which each of them matches: its text stands for the
// set, within its namespace.
std::vector<LabelHash> ReadApart(const Json& pod) {
  std::vector<LabelHash> anti_affinity;
  for (const Json& term : FieldAt(
           pod, {"spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"})) {
    const Json& selector = FieldAt(term, {"labelSelector"});
    const bool elsewhere = !FieldAt(term, {"namespaces"}).empty() || term.contains("namespaceSelector");
    if (TextAt(term, {"topologyKey"}) != kHostLabel || selector.is_null() || elsewhere ||
        !Selects(selector, FieldAt(pod, {"metadata", "labels"})))
      continue;
    anti_affinity.push_back(HashLabel(TextAt(pod, {"metadata", "namespace"}) + "/" + kube::ToText(selector)));
  }
  return anti_affinity;
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
    const bool ours = key == kTaintKey || key == kPluginTaintKey;
    if (!effect || IsOfHealth(key) || ours || key == kOutOfServiceKey) continue;
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
  scheduling.anti_affinity = ReadApart(pod);
  return scheduling;
}

Scheduling ReadPlaces(const Json& volume) {
  Scheduling places;
  for (const Json& term : FieldAt(volume, {"spec", "nodeAffinity", "required", "nodeSelectorTerms"}))
    places.terms.push_back(ReadTerm(term));
  return places;
}

}  // namespace lunkeeper::fencing
