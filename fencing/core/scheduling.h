#pragma once
// Where a pod may run, as the scheduler sees it: what it asks of a node, which taints it bears, and which
// pods must be there or must not. Pure functions of plain values; what is not understood of a node is read as
// not met, so that a pod which perhaps could run nowhere else is left alone.

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
using Labels = std::vector<Label>;

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

// What a node has for pods, or what a pod asks for. Zero of a node: not known.
struct Resources {
  int32_t milli_cpus = 0, mebibytes = 0;
  friend bool operator==(const Resources&, const Resources&) = default;
};

// A node as a place for pods.
struct NodeLabels {
  Labels labels;
  std::vector<Taint> taints;
  Resources allocatable = {};
  friend bool operator==(const NodeLabels&, const NodeLabels&) = default;
};

// A constraint of topology spread by host, over pods of its namespace. Every node counts that the pod's node
// selector allows, also one that takes no pods any more.
struct Spread {
  Requirements like;  // the pod is like these itself
  int max_skew = 1;   // no node may have so many more of them than the one with the fewest has
  friend bool operator==(const Spread&, const Spread&) = default;
};

// What a pod asks of its place.
struct Scheduling {
  Requirements selector;
  std::vector<Requirements> terms;  // one of them at least; empty: nothing more is asked
  std::vector<Toleration> tolerations;
  std::vector<LabelHash> anti_affinity;  // no two pods with a common one run on one node
  std::optional<Requirements> beside;    // it runs only where such a pod of its namespace is
  std::vector<Spread> spread;
  friend bool operator==(const Scheduling&, const Scheduling&) = default;
};

// Node selector and node affinity.
bool SelectsNode(const Scheduling& pod, const NodeLabels& node);
// The same, and taints.
bool Fits(const Scheduling& pod, const NodeLabels& node);
// A selector of pods; one that asks for nothing selects all.
bool SelectsPod(const Requirements& selector, const Labels& pod);
bool HasRoom(const NodeLabels& node, const Resources& asked);

}  // namespace lunkeeper::fencing
