#pragma once
// Records for people what failover does: in the log, in the timeline of each NodeFence, in events on Nodes
// and Pods, and in metrics. One failover can be followed from the log's lines alone. One thread uses it.
// Nothing fails: what cannot be recorded is dropped.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/metrics.h"
#include "fencing/core/state.h"
#include "fencing/failover/kube_actions.h"
#include "fencing/failover/object_cache.h"
#include "fencing/failover/record.h"
#include "fencing/kube/lease.h"
#include "fencing/kube/object_event.h"

namespace lunkeeper::fencing {

class FailoverRecorder {
 public:
  // `record` queues events for Kubernetes; it must not block.
  FailoverRecorder(const State& state, const ObjectCache& objects, kube::LeaseName lease,
                   std::function<void(kube::ObjectEvent)> record, const Executor& executor)
      : state_(state),
        objects_(objects),
        lease_(std::move(lease)),
        record_(std::move(record)),
        executor_(executor) {}

  void SetLeads(bool leads);
  void SetSynced(bool synced) { synced_ = synced; }
  void OnReport(const Report& report);
  void OnAction(const Action& action);
  void OnAnswer(const Action& action, const Answer& answer, Span took);
  // Failover does not act, here or at all: goes to the log and to an event on the Lease.
  void OnLeadership(const std::string& text);
  // A NodeFence is new or changed; null: it was deleted.
  void OnRecord(const NodeId& node, const RecordFacts* facts);
  Timeline TimelineOf(const NodeId& node) const;

  void ReportMetrics(Metrics& metrics);

 private:
  struct NodeTimeline {
    // What is old is of a failover that never came to a record.
    void ForgetIfOld(absl::Duration now) {
      if (now - latest > absl::Minutes(1)) timeline.clear();
    }

    Timeline timeline;
    absl::Duration latest;          // the last entry or decision made here, by the steady clock
    int deleting = 0, deleted = 0;  // pods
    std::set<Uid> left;             // pods with a NotFailedOver event
  };

  void AddEntry(const NodeId& node, absl::Time at, const std::string& event, const std::string& text);
  void RecordDecision(const NodeFence& fence);
  void RecordTaint(const SetTaint& call);
  // For the log: it is not what was said of that last.
  bool IsNews(const Action& action, const Answer& answer);
  void RecordSuccess(const Action& action, const Answer& answer);
  void ReportDeletedPod(const DeletePod& call, uint64_t id);
  void ReportPodsLeft(const NodeId& node, const std::string& which);
  void AddPodEvent(const PodId& pod, const Uid& uid, const std::string& reason, const std::string& action,
                   const std::string& text);
  void MeasurePhases(const Timeline& timeline);
  // Queues an event on the Node, or on its NodeFence when the Node does not exist.
  void AddNodeEvent(const NodeId& node, kube::EventKind kind, const std::string& reason,
                    const std::string& text);
  // The NodeFence that a fence at an array belongs to: of a machine, the one that a person asked for.
  NodeId RecordOf(const NodeId& fenced) const;
  // The NodeFence that caused the pod's deletion; empty: none did.
  NodeId FenceOf(const PodId& pod) const;

  const State& state_;
  const ObjectCache& objects_;
  const kube::LeaseName lease_;
  const std::function<void(kube::ObjectEvent)> record_;
  const Executor& executor_;
  std::map<NodeId, NodeTimeline> timelines_;
  std::map<uint64_t, NodeId> deletions_;      // the node of each pod deletion in progress, by action
  std::map<NodeName, std::string> refusals_;  // of the taints of silent plugins: the last error of each
  bool leads_ = false, synced_ = false;
  int decided_ = 0, fence_failures_ = 0, pods_deleted_ = 0, yields_ = 0;
  Metrics::Series refused_;  // by safety limit
  // The phases that ended since the last ReportMetrics, with their durations.
  std::vector<std::pair<std::string, absl::Duration>> took_;
};

}  // namespace lunkeeper::fencing
