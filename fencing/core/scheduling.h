#pragma once
// Where a pod may run, as the scheduler sees it: what it asks of a node's labels, and which taints it bears.
// Pure functions of plain values; what is not understood is read as not met, so that a pod which perhaps
// could run nowhere else is left alone.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lunkeeper::fencing {

// A text of which only this matters: is it equal, and, of a whole number, is it greater? A number is itself;
// any other text its hash, with the top bit set. Small, as each of 10,000 nodes has some twenty labels.
using LabelHash = uint64_t;
LabelHash HashLabel(const std::string& text);

// Stands for the node's name among its labels; no label has such a key.
inline constexpr char kNameLabel[] = ".metadata.name";

struct Label {
  LabelHash key = 0, value = 0;
  friend bool operator==(const Label&, const Label&) = default;
};

enum class Operator { kIn, kNotIn, kExists, kDoesNotExist, kGreater, kLess, kUnknown };
// By its name in Kubernetes: In, NotIn, Exists, DoesNotExist, Gt, Lt.
Operator OperatorOf(const std::string& name);

struct Requirement {
  LabelHash key = 0;
  Operator op = Operator::kUnknown;
  std::vector<LabelHash> values;
  friend bool operator==(const Requirement&, const Requirement&) = default;
};
using Requirements = std::vector<Requirement>;  // all of them

enum class Effect { kNoSchedule, kNoExecute };
struct Taint {
  LabelHash key = 0, value = 0;
  Effect effect = Effect::kNoSchedule;
  friend bool operator==(const Taint&, const Taint&) = default;
};
struct Toleration {  // none: any
  std::optional<LabelHash> key, value;
  std::optional<Effect> effect;
  friend bool operator==(const Toleration&, const Toleration&) = default;
};

// A node as a place for pods.
struct NodeLabels {
  std::vector<Label> labels;
  std::vector<Taint> taints;
  friend bool operator==(const NodeLabels&, const NodeLabels&) = default;
};

// What a pod asks of its place.
struct Scheduling {
  Requirements selector;
  std::vector<Requirements> terms;  // one of them at least; empty: nothing more is asked
  std::vector<Toleration> tolerations;
  std::vector<LabelHash> anti_affinity;  // no two pods with a common one run on one node
  friend bool operator==(const Scheduling&, const Scheduling&) = default;
};

bool Fits(const Scheduling& pod, const NodeLabels& node);

}  // namespace lunkeeper::fencing
