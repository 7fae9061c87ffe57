// Kubernetes' own rules, from its documentation of node affinity, and of taints and tolerations. Texts are
// kept as hashes, since they are compared and never shown; numbers as themselves, for Gt and Lt. Two texts of
// one hash would make a pod fit where it does not; with 63 bits that does not happen in practice.

#include "fencing/core/scheduling.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

namespace lunkeeper::fencing {
namespace {

constexpr LabelHash kHashed = LabelHash{1} << 63;

bool IsNumber(LabelHash word) { return (word & kHashed) == 0; }

bool HasHash(const std::vector<LabelHash>& words, LabelHash word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool MeetsRequirement(const Labels& labels, const Requirement& asked) {
  const auto label =
      std::find_if(labels.begin(), labels.end(), [&](const Label& each) { return each.key == asked.key; });
  const bool exists = label != labels.end();
  const bool compares =
      exists && IsNumber(label->value) && asked.values.size() == 1 && IsNumber(asked.values[0]);
  switch (asked.op) {
    case Operator::kIn:
      return exists && HasHash(asked.values, label->value);
    case Operator::kNotIn:
      return !exists || !HasHash(asked.values, label->value);
    case Operator::kExists:
      return exists;
    case Operator::kDoesNotExist:
      return !exists;
    case Operator::kGreater:
      return compares && label->value > asked.values[0];
    case Operator::kLess:
      return compares && label->value < asked.values[0];
    case Operator::kUnknown:
      break;
  }
  return false;
}

// A term that asks for nothing is met by no node.
bool MeetsAll(const NodeLabels& node, const Requirements& all) {
  return !all.empty() && SelectsPod(all, node.labels);
}

template <class T>
bool AllowsValue(const std::optional<T>& tolerated, const T& what) {
  return !tolerated || *tolerated == what;
}

bool ToleratesTaint(const Scheduling& pod, const Taint& taint) {
  return std::any_of(pod.tolerations.begin(), pod.tolerations.end(), [&](const Toleration& each) {
    return AllowsValue(each.key, taint.key) && AllowsValue(each.value, taint.value) &&
           AllowsValue(each.effect, taint.effect);
  });
}

}  // namespace

LabelHash HashLabel(const std::string& text) {
  int64_t number = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  // "007" is not the text "7".
  if (parsed.ec == std::errc() && parsed.ptr == end && number >= 0 && std::to_string(number) == text)
    return static_cast<LabelHash>(number);
  return std::hash<std::string>()(text) | kHashed;
}

Operator OperatorOf(const std::string& name) {
  static const std::map<std::string, Operator> kOperators = {
      {"In", Operator::kIn},         {"NotIn", Operator::kNotIn},
      {"Exists", Operator::kExists}, {"DoesNotExist", Operator::kDoesNotExist},
      {"Gt", Operator::kGreater},    {"Lt", Operator::kLess}};
  const auto found = kOperators.find(name);
  return found == kOperators.end() ? Operator::kUnknown : found->second;
}

bool SelectsNode(const Scheduling& pod, const NodeLabels& node) {
  const auto meets_all = [&](const Requirements& term) { return MeetsAll(node, term); };
  return (pod.selector.empty() || meets_all(pod.selector)) &&
         (pod.terms.empty() || std::any_of(pod.terms.begin(), pod.terms.end(), meets_all));
}

bool Fits(const Scheduling& pod, const NodeLabels& node) {
  return SelectsNode(pod, node) && std::all_of(node.taints.begin(), node.taints.end(),
                                               [&](const auto& taint) { return ToleratesTaint(pod, taint); });
}

bool SelectsPod(const Requirements& selector, const Labels& pod) {
  return std::all_of(selector.begin(), selector.end(),
                     [&](const auto& each) { return MeetsRequirement(pod, each); });
}

bool HasRoom(const NodeLabels& node, const Resources& asked) {
  const auto& has = node.allocatable;
  return (has.milli_cpus == 0 || asked.milli_cpus <= has.milli_cpus) &&
         (has.mebibytes == 0 || asked.mebibytes <= has.mebibytes);
}

}  // namespace lunkeeper::fencing
