#include "fencing/failover/read_scheduling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "fencing/failover/facts.h"
#include "fencing/kube/quantity.h"

// The fields are those of Kubernetes' "Assigning Pods to Nodes" and "Taints and Tolerations". What is
// preferred is not read, nor pod affinity and spread but by host: failover only asks whether some node could
// take the pod, and leaves the choice to the scheduler. Strings become label hashes, which are quick to
// compare and small.
namespace lunkeeper::fencing {
namespace {

using kube::FieldAt;
using kube::FlagAt;
using kube::Json;
using kube::NumberAt;
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

// A selector of pods.
Requirements ReadSelector(const Json& selector) {
  Requirements asked;
  for (const auto& each : FieldAt(selector, {"matchLabels"}).items())
    asked.push_back({HashLabel(each.key()), Operator::kIn, {HashIn(each.value())}});
  for (const Json& each : FieldAt(selector, {"matchExpressions"}))
    asked.push_back(ReadRequirement(each, TextAt(each, {"key"})));
  return asked;
}

// A term of pod affinity: by host, and of pods of its own namespace.
bool IsOfHosts(const Json& term) {
  return TextAt(term, {"topologyKey"}) == kHostLabel && !FieldAt(term, {"labelSelector"}).is_null() &&
         FieldAt(term, {"namespaces"}).empty() && !term.contains("namespaceSelector");
}

// Replicas of one set that keep apart have one selector, which each of them matches: its text stands for the
// set, within its namespace.
std::vector<LabelHash> ReadApart(const Json& pod) {
  std::vector<LabelHash> anti_affinity;
  for (const Json& term : FieldAt(
           pod, {"spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"})) {
    const Json& selector = FieldAt(term, {"labelSelector"});
    if (!IsOfHosts(term) || !SelectsPod(ReadSelector(selector), ReadLabels(pod))) continue;
    anti_affinity.push_back(HashLabel(TextAt(pod, {"metadata", "namespace"}) + "/" + kube::ToText(selector)));
  }
  return anti_affinity;
}

// One pod has to meet all of the terms. If one of them is not understood, none is read.
std::optional<Requirements> ReadBeside(const Json& pod) {
  std::optional<Requirements> beside;
  for (const Json& term :
       FieldAt(pod, {"spec", "affinity", "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution"})) {
    if (!IsOfHosts(term)) return std::nullopt;
    if (!beside) beside.emplace();
    for (auto& asked : ReadSelector(FieldAt(term, {"labelSelector"}))) beside->push_back(std::move(asked));
  }
  return beside;
}

// The constraints that count a node which takes no pods any more, as they do unless they say otherwise.
std::vector<Spread> ReadSpread(const Json& pod) {
  std::vector<Spread> spread;
  for (const Json& each : FieldAt(pod, {"spec", "topologySpreadConstraints"})) {
    const Json& selector = FieldAt(each, {"labelSelector"});
    const bool asks = TextAt(each, {"whenUnsatisfiable"}) == "DoNotSchedule" &&
                      TextAt(each, {"topologyKey"}) == kHostLabel && !selector.is_null();
    if (!asks || TextAt(each, {"nodeTaintsPolicy"}) == "Honor" || !FieldAt(each, {"matchLabelKeys"}).empty())
      continue;
    Spread read{ReadSelector(selector), static_cast<int>(NumberAt(each, {"maxSkew"}))};
    if (read.max_skew > 0 && SelectsPod(read.like, ReadLabels(pod))) spread.push_back(std::move(read));
  }
  return spread;
}

// In units of which there are `per_unit` in one of Kubernetes'. Zero: it does not say.
double ReadAmount(const Json& list, const char* what, double per_unit) {
  return kube::ParseQuantity(TextAt(list, {what})).value_or(0) * per_unit;
}

int32_t RoundTo32(double amount) {
  return static_cast<int32_t>(std::clamp(amount, 0.0, double{std::numeric_limits<int32_t>::max()}));
}

constexpr double kMillis = 1000, kMebibytes = 1.0 / (1 << 20);

// The containers run at once, the init containers before them. Sidecars come on top; they are left out here,
// as the least is asked for that the pod needs in any case.
double ReadAsked(const Json& pod, const char* what, double per_unit) {
  double together = 0, most = ReadAmount(FieldAt(pod, {"spec", "resources", "requests"}), what, per_unit);
  for (const Json& each : FieldAt(pod, {"spec", "containers"}))
    together += ReadAmount(FieldAt(each, {"resources", "requests"}), what, per_unit);
  for (const Json& each : FieldAt(pod, {"spec", "initContainers"}))
    most = std::max(most, ReadAmount(FieldAt(each, {"resources", "requests"}), what, per_unit));
  return std::max(most, together);
}

}  // namespace

Labels ReadLabels(const Json& object) {
  Labels labels;
  const Json& all = FieldAt(object, {"metadata", "labels"});
  labels.reserve(all.size());
  for (const auto& label : all.items()) labels.push_back({HashLabel(label.key()), HashIn(label.value())});
  return labels;
}

// What is asked for is rounded down, and what a node has up.
Resources ReadRequests(const Json& pod) {
  return {RoundTo32(ReadAsked(pod, "cpu", kMillis)), RoundTo32(ReadAsked(pod, "memory", kMebibytes))};
}

NodeLabels ReadNodeLabels(const Json& node) {
  NodeLabels labels;
  labels.labels = ReadLabels(node);
  labels.labels.push_back({HashLabel(kNameLabel), HashLabel(TextAt(node, {"metadata", "name"}))});
  labels.labels.shrink_to_fit();  // of each of 10,000 nodes they are kept
  const Json& has = FieldAt(node, {"status", "allocatable"});
  labels.allocatable = {RoundTo32(std::ceil(ReadAmount(has, "cpu", kMillis))),
                        RoundTo32(std::ceil(ReadAmount(has, "memory", kMebibytes)))};
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
  scheduling.beside = ReadBeside(pod);
  scheduling.spread = ReadSpread(pod);
  return scheduling;
}

Scheduling ReadPlaces(const Json& volume) {
  Scheduling places;
  for (const Json& term : FieldAt(volume, {"spec", "nodeAffinity", "required", "nodeSelectorTerms"}))
    places.terms.push_back(ReadTerm(term));
  return places;
}

}  // namespace lunkeeper::fencing
