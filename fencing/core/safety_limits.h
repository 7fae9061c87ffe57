#pragma once
// What keeps a fault of the observer from becoming an outage of the cluster: a budget of nodes per window,
// and past it a self-test and one node at a time; no more while many nodes got into trouble together that is
// not plainly their own death; pause; exemption. Only decisions made by evidence pass here; what has begun is
// carried on. At each tick all classifications are noted and the nodes counted before any node is decided on.
// A machine counts once, whatever number of instances it gives itself: it could make up a mass, a deaf
// observer or a spent budget, and so keep the others from being failed over.
// One thread owns it. A new leader counts every open failover as new.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fencing/core/classify.h"
#include "fencing/core/cluster.h"
#include "fencing/core/evidence.h"
#include "fencing/core/refusal.h"
#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

inline constexpr int kFewestOfAMass = 3;

struct LimitRefusal {
  Refusal reason;
  std::string text;
};

class SafetyLimits {
 public:
  explicit SafetyLimits(const Settings& settings) : settings_(settings) {}

  // An automatic failover of `node` was decided, by us or by another replica. Repeats change nothing.
  void NoteDecision(const NodeId& node, Instant now);
  // What the evidence says of `node` at this tick.
  void NoteClassification(const NodeId& node, const Classification& classification, Instant now);
  // Once a tick, after all classifications: what follows compares a node with the others as they are now.
  void CountNodes(const Cluster& cluster, const Evidence& evidence, Instant now);
  // What shows that the silence of `node` may be this observer's own fault; empty: nothing.
  std::string SelfTest(const NodeId& node, const Evidence& evidence, Instant now) const;
  // Why `node` may not be failed over now, for what is said of it; empty: it may.
  std::optional<LimitRefusal> RefusalOf(const NodeId& node, const Classification& classification,
                                        const Cluster& cluster, const Evidence& evidence, Instant now);

 private:
  // One stretch of time in which a node was not well, and not plainly dead.
  struct Trouble {
    Instant began, last;
    bool over = false;        // it was well again after `last`
    bool late_lease = false;  // and nothing else
    bool works = false;       // as Classification::works
    std::string_view what;    // as Classification::what
  };
  struct Counts {
    int current = 0;                  // machines that a mass is a share of
    int witnesses = 0, arriving = 0;  // machines that should send heartbeats, and machines that do
    int budget = 1;
    std::vector<Instant> began;  // the troubles of the current ones, but for late leases, in order of time
  };

  // It has worked with its trouble for so long that the trouble says nothing of what happens now.
  static bool IsStanding(const Trouble& trouble, Instant now);
  void CountMachines(const Evidence& evidence, Instant now);
  bool IsMass(const NodeId& node, Instant now) const;
  bool HearsMost() const;

  const Settings& settings_;
  std::map<NodeName, Instant> decided_;
  Instant latest_decision_;
  std::map<NodeId, Trouble> in_trouble_;
  Counts counts_;
};

}  // namespace lunkeeper::fencing
