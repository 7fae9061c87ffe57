#pragma once
// Tells people what failover does, each in its place: a log in which one failover can be followed from its
// lines alone, the timeline of each NodeFence, events on Nodes and Pods, and numbers. One thread uses it.
// Never fails: what cannot be told is dropped.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/metrics.h"
#include "fencing/core/state.h"
#include "fencing/failover/kube_actions.h"
#include "fencing/failover/object_cache.h"
#include "fencing/failover/record.h"
#include "fencing/kube/object_event.h"

namespace lunkeeper::fencing {

class FailoverRecorder {
 public:
  // `record` takes events for Kubernetes; it does not block.
  FailoverRecorder(const State& state, const ObjectCache& objects,
                   std::function<void(kube::ObjectEvent)> record)
      : state_(state), objects_(objects), record_(std::move(record)) {}

  void Leads(bool leads);
  void Synced(bool synced) { synced_ = synced; }
  void Said(const Report& report);
  void Asked(const Action& action);
  void Answered(const Action& action, const Answer& answer, Span took);
  // Null: it is gone.
  void OnRecord(const NodeId& node, const RecordFacts* facts);
  Timeline TimelineOf(const NodeId& node) const;

  void ReportMetrics(Metrics& metrics);

 private:
  void Add(const NodeId& node, absl::Time at, const std::string& event, const std::string& text);
  void Began(const PutNodeFence& call);
  void Succeeded(const Action& action, const Answer& answer);
  void DeletedPod(const DeletePod& call, uint64_t id);
  void TellLeft(const NodeId& node);
  void TellPod(const PodId& pod, const Uid& uid, const std::string& reason, const std::string& action,
               const std::string& text);
  void Moved(const Timeline& timeline);
  // An event on the Node, or on the NodeFence of one that is not there.
  void TellNode(const NodeId& node, kube::EventKind kind, const std::string& reason, const std::string& text);
  // The NodeFence on account of which this pod goes; empty: none.
  NodeId FenceOf(const PodId& pod) const;

  struct NodeTimeline {
    Timeline timeline;
    int deleting = 0, deleted = 0;  // pods
    std::set<Uid> left;             // pods that were told so
  };

  const State& state_;
  const ObjectCache& objects_;
  const std::function<void(kube::ObjectEvent)> record_;
  std::map<NodeId, NodeTimeline> timelines_;
  std::map<uint64_t, NodeId> deletions_;  // of a failover, by action
  bool leads_ = false, synced_ = false;
  int decided_ = 0, fence_failures_ = 0, pods_ = 0;
  Metrics::Series refused_;  // by limit
  std::vector<std::pair<std::string, absl::Duration>>
      took_;  // phases that ended since the last ReportMetrics
};

}  // namespace lunkeeper::fencing
