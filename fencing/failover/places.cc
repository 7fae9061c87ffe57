#include "fencing/failover/places.h"

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

Word WordIn(const Json& json) { return WordOf(json.is_string() ? json.get<std::string>() : ""); }

Requirement ReadRequirement(const Json& json, const std::string& key) {
  Requirement asked{WordOf(key), DemandOf(TextAt(json, {"operator"})), {}};
  for (const Json& value : FieldAt(json, {"values"})) asked.values.push_back(WordIn(value));
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
  if (!key.empty()) toleration.key = WordOf(key);
  if (how == "Exists") return toleration;
  if (key.empty() || (!how.empty() && how != "Equal")) return std::nullopt;
  toleration.value = WordOf(TextAt(json, {"value"}));
  return toleration;
}

}  // namespace

Site ReadSite(const Json& node) {
  Site site;
  site.labels.push_back({WordOf(kNameLabel), WordOf(TextAt(node, {"metadata", "name"}))});
  for (const auto& label : FieldAt(node, {"metadata", "labels"}).items())
    site.labels.push_back({WordOf(label.key()), WordIn(label.value())});
  for (const Json& taint : FieldAt(node, {"spec", "taints"})) {
    const std::string key = TextAt(taint, {"key"});
    const auto effect = EffectOf(taint);
    if (!effect || IsOfHealth(key) || key == kTaintKey || key == kOutOfServiceKey) continue;
    site.taints.push_back({WordOf(key), WordOf(TextAt(taint, {"value"})), *effect});
  }
  if (FlagAt(node, {"spec", "unschedulable"}))
    site.taints.push_back({WordOf(kUnschedulable), WordOf(""), Effect::kNoSchedule});
  return site;
}

Placement ReadPlacement(const Json& pod) {
  Placement placement;
  for (const auto& asked : FieldAt(pod, {"spec", "nodeSelector"}).items())
    placement.selector.push_back({WordOf(asked.key()), Demand::kIn, {WordIn(asked.value())}});
  for (const Json& term :
       FieldAt(pod, {"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
                     "nodeSelectorTerms"}))
    placement.terms.push_back(ReadTerm(term));
  for (const Json& each : FieldAt(pod, {"spec", "tolerations"}))
    if (const auto toleration = ReadToleration(each)) placement.tolerations.push_back(*toleration);
  return placement;
}

}  // namespace lunkeeper::fencing
