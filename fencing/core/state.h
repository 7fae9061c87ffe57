#pragma once
// All that the core knows, for its parts to work on: what is seen, and the actions they ask for. One thread
// owns it; nothing fails.

#include <map>
#include <set>
#include <string>

#include "fencing/core/classify.h"
#include "fencing/core/cluster.h"
#include "fencing/core/eligibility.h"
#include "fencing/core/evidence.h"
#include "fencing/core/known_arrays.h"
#include "fencing/core/outbox.h"
#include "fencing/core/placement.h"
#include "fencing/core/safety_limits.h"
#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

struct PendingRequest {
  ArrayId array;
  NodeId holder;
  Instant at;
};

// A node that is to be fenced by evidence.
struct DueFence {
  Instant since;
  std::optional<Instant> asked_at;  // the API server how its kubelet is, which has not answered since
};

// The last report of a kind.
struct Said {
  std::string text;
  std::optional<Refusal> refusal = {};
  friend bool operator==(const Said&, const Said&) = default;
};

// Nodes died of a volume: what this replica knows besides which.
struct ChargeSide {
  Instant since = {};                    // the last of them
  std::optional<Instant> store_at = {};  // it could not be stored, and is to be then
  bool unstorable = false;               // there is no object to store it on
  std::optional<NodeId> user = {};       // has had a device of it since, and was well
};

// A node whose plugin is not heard, or that has a taint for it.
struct PluginWatch {
  Uid uid = {};  // of the Node
  std::optional<Instant> silent_since = {}, unwanted_since = {};
  Instant looked_at = {};  // at the last tick at which this replica led
  std::optional<Instant> votes_at = {};
  bool heard_elsewhere = false;  // by the votes
  int refused = 0;               // writes of its taint, in a row
};

// A pod and its replacements: by name, or all pods of an owner that gives each a new name.
struct PodLine {
  Uid owner;
  PodId name;
  friend auto operator<=>(const PodLine&, const PodLine&) = default;
};

struct CrashLoop {
  Instant seen_at;    // the last time that one of the line crash-looped
  Instant kicked_at;  // the last kick of one of the line
  // Pods of the line that were there at the first kick, and have not been replaced: all, and those of them
  // that share a volume with the kicked one.
  std::set<Uid> there = {}, beside = {};
};

// A pod that was asked to start anew.
struct PodKick {
  Instant at;
  VolumeSet failed = {};      // those of its volumes whose devices had failed for good, if that is why
  std::set<Uid> beside = {};  // the other pods of these, which have to start anew for themselves
  std::optional<PodLine> looped = {};  // or it crash-looped
};

struct State {
  explicit State(const Settings& given)
      : settings(given), evidence(settings), limits(settings), outbox(settings), placement(settings) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Settings settings;
  Instant now;
  Evidence evidence;
  Cluster cluster;
  KnownArrays arrays;
  SafetyLimits limits;
  Outbox outbox;
  Placement placement;
  std::map<VolumeId, PendingRequest> wanted;  // on demand
  std::map<NodeId, Instant> leaving_since;    // graceful moves, as this replica saw them begin
  std::map<Uid, PodKick> kicked;
  std::map<PodLine, CrashLoop> crash_loops;  // of which a pod was kicked for that
  // Pods one of whose devices has been reported as failed for good ever since.
  std::map<NodeId, std::map<Uid, Instant>> failed_since;
  std::map<VolumeId, ChargeSide> charges;  // of those in cluster.charged()
  std::map<NodeName, PluginWatch> plugins;
  std::map<NodeId, DueFence> due;    // whether the limits let it be done or not
  std::map<NodeId, int> unrecorded;  // how often in a row the API server did not store its new NodeFence
  std::set<NodeId> decided_dead;     // with a record for another reason: its death is decided as well
  // With a record of what was fenced on evidence: it was well since. That was one decision, and what is
  // fenced of it from now on is another one.
  std::set<NodeId> came_back;
  std::map<std::pair<ReportKind, NodeId>, Said> said;
  std::map<ArrayId, Instant> termless_since;  // of a leader: arrays that it sees and has no term on

  Classification ClassifyNode(const NodeId& node) const {
    return Classify(evidence.SignalsOf(node, now), settings);
  }
  // What ClassifyNode says of a node of which `signals` are known, for the safety limits too.
  Classification ClassifyAndNote(const NodeId& node, const Signals& signals);
  // Its name means this instance, not another that has taken it over.
  bool IsCurrent(const NodeId& node) const {
    return cluster.IsCurrent(node) && !evidence.HasSuccessor(node, now);
  }
  // With `only`, arrays to which the node has lost its path: of a node that works otherwise. The pods of a
  // node that works, or may, leave only for a place that reaches their arrays. What is fenced from it already
  // is of no use there, and leaves for any place. What of `begun` is fenced from it leaves, too.
  Plan PlanFor(const NodeId& node, const std::set<ArrayId>& only, const VolumesByArray& begun = {},
               bool works = false) const;
  // At each array: the fence of the whole machine that the node is an instance of.
  std::map<ArrayId, ArrayFence> FencesOfMachine(const NodeId& node) const;
  // Of a node whose machine is fenced: the pods whose volumes that fence has taken.
  Plan PlanForMachine(const NodeId& node) const;
  // The volumes that others wait for and `node` holds.
  VolumesByArray WantedFrom(const NodeId& node) const;
  // A failover has begun, and is not at rest.
  bool IsFailingOver() const;
  // Configured arrays that this replica has not seen for some time.
  std::vector<ArrayId> UnseenArrays() const;
  // Those on which this leader has got no term for some time: it can fence nobody there.
  std::vector<ArrayId> TermlessArrays() const;
  // Nodes that came and went, and requests that are over, so that a cluster whose machines and volumes change
  // does not fill the memory.
  void ForgetNodes();
  // Another may lead meanwhile: what this replica decided, and its terms, hold no more.
  void LoseLead();
  // Sends it, unless its text is that of the last one of its kind about this node. An empty text withdraws.
  void ReportOnce(Report report);
  // Sends nothing; the next report is sent whatever it says.
  void WithdrawReport(ReportKind kind, const NodeId& node) { said.erase({kind, node}); }
};

}  // namespace lunkeeper::fencing
