#include "fencing/failover/failover_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "fencing/core/instances.h"
#include "fencing/core/trace.h"
#include "fencing/failover/clock.h"

namespace lunkeeper::fencing {
namespace {

constexpr size_t kMostTimelineEntries = 100;

bool IsRoutine(const Action& action) {
  return std::holds_alternative<WriteLease>(action.what) || std::holds_alternative<Probe>(action.what) ||
         std::holds_alternative<Notify>(action.what) || std::holds_alternative<Report>(action.what);
}

constexpr char kMovedEvent[] = "Moved";

bool IsMoved(const Report& report) {
  return report.phase == Phase::kMoved || report.phase == Phase::kAwaitingNode;
}

size_t CountOf(const VolumesByArray& volumes) {
  size_t count = 0;
  for (const auto& [array, some] : volumes) count += some.size();
  return count;
}

}  // namespace

void FailoverRecorder::Leads(bool leads) {
  if (std::exchange(leads_, leads) == leads) return;
  LogInfo("failover", leads ? "this replica leads" : "this replica leads no more");
}

void FailoverRecorder::Said(const Report& report) {
  const bool refused = report.kind == ReportKind::kRefused;
  const bool progress = report.kind == ReportKind::kProgress;
  if (report.refusal) ++refused_[{{"limit", std::string(ToWord(*report.refusal))}}];
  LogWarn("failover",
          absl::StrCat(progress  ? "phase: "
                       : refused ? "refused: "
                                 : "seen: ",
                       report.text),
          {{"node", report.node.value()}});
  if (progress) {
    Timeline& timeline = timelines_[report.node].timeline;
    const bool moved =
        IsMoved(report) && std::none_of(timeline.begin(), timeline.end(),
                                        [](const auto& entry) { return entry.event == kMovedEvent; });
    Add(report.node, absl::Now(), moved ? kMovedEvent : "Phase", report.text);
    if (moved) Moved(timeline);
  }
  TellNode(report.node, progress ? kube::EventKind::kNormal : kube::EventKind::kWarning,
           progress  ? "Failover"
           : refused ? "FailoverRefused"
                     : "NodeSuspected",
           report.text);
}

void FailoverRecorder::Asked(const Action& action) {
  if (const auto* put = std::get_if<PutNodeFence>(&action.what)) Began(*put);
  if (const auto* fence = std::get_if<FenceNode>(&action.what))
    Add(fence->node, absl::Now(), "Fencing",
        absl::StrCat(fence->array.value(), ": ", fence->volumes.size(), " volumes"));
  const auto* call = std::get_if<DeletePod>(&action.what);
  if (call == nullptr) return;
  const NodeId node = FenceOf(call->pod);
  if (node.empty()) return;
  deletions_[action.id] = node;
  NodeTimeline& timeline = timelines_[node];
  if (timeline.deleting++ == 0 && timeline.deleted == 0) Add(node, absl::Now(), "Deleting", "its pods");
}

// The first record of a failover says how it came to be.
void FailoverRecorder::Began(const PutNodeFence& call) {
  const NodeFence& fence = call.fence;
  if (!timelines_[fence.node].timeline.empty() || fence.phase == Phase::kRefused) return;
  const auto evidence = state_.evidence.nodes().find(fence.node);
  if (fence.requested_by.empty() && evidence != state_.evidence.nodes().end() && evidence->second.heard) {
    const absl::Duration silent = ToAbsl(state_.now - evidence->second.heartbeat_at.value_or(state_.now));
    Add(fence.node, absl::Now() - silent, "LastHeard", "its last heartbeat");
  }
  ++decided_;
  const std::string by =
      fence.requested_by.empty() ? "" : absl::StrCat("asked for by ", fence.requested_by, ": ");
  Add(fence.node, absl::Now(), "Decided", absl::StrCat(by, fence.cause));
  LogWarn("failover", absl::StrCat("decided: ", by, fence.cause),
          {{"node", fence.node.value()}, {"volumes", DescribeVolumes(fence.volumes)}});
}

void FailoverRecorder::Answered(const Action& action, const Answer& answer, Span took) {
  const bool ok = answer.done.outcome == Outcome::kOk;
  // Two replicas may reach for the lease at once; that one is told no is in order.
  const bool in_order = ok || answer.done.outcome == Outcome::kConflict;
  if (!IsRoutine(action) || !in_order) {
    Fields fields = {{"took_ms", std::to_string(took.milliseconds())}};
    if (!ok) fields.push_back({"error", std::string(answer.status.message())});
    if (ok) {
      LogInfo("failover", absl::StrCat("done: ", DescribeAction(action)), fields);
    } else {
      LogWarn("failover", absl::StrCat("not done: ", DescribeAction(action)), fields);
    }
  }
  if (ok) Succeeded(action, answer);
  const auto* fence = std::get_if<FenceNode>(&action.what);
  if (fence != nullptr && !ok) {
    ++fence_failures_;
    Add(fence->node, absl::Now(), "FenceFailed",
        absl::StrCat(fence->array.value(), ": ", answer.status.message()));
  }
  const auto deletion = deletions_.find(action.id);
  if (deletion == deletions_.end()) return;
  NodeTimeline& timeline = timelines_[deletion->second];
  --timeline.deleting;
  if (ok || answer.done.outcome == Outcome::kGone) ++timeline.deleted, ++pods_;
  if (timeline.deleting == 0)
    Add(deletion->second, absl::Now(), "Deleted", absl::StrCat(timeline.deleted, " pods"));
  deletions_.erase(deletion);
}

void FailoverRecorder::Succeeded(const Action& action, const Answer& answer) {
  if (const auto* put = std::get_if<PutNodeFence>(&action.what)) {
    if (put->fence.version.empty())
      Add(put->fence.node, absl::Now(), "Recorded",
          absl::StrCat(CountOf(put->fence.volumes), " volumes on ", put->fence.volumes.size(), " arrays"));
  } else if (const auto* fence = std::get_if<FenceNode>(&action.what)) {
    const std::string text = absl::StrCat(fence->array.value(), ": ", fence->volumes.size(),
                                          " volumes, generation ", answer.done.fence->generation);
    Add(fence->node, absl::Now(), "Fenced", text);
    TellNode(fence->node, kube::EventKind::kWarning, "Fenced", text);
    TellLeft(fence->node);
  } else if (const auto* lift = std::get_if<UnfenceNode>(&action.what)) {
    Add(lift->node, absl::Now(), "Unfenced", lift->array.value());
    TellNode(lift->node, kube::EventKind::kNormal, "Unfenced", lift->array.value());
  } else if (const auto* taint = std::get_if<SetTaint>(&action.what)) {
    if (!taint->value.empty()) Add(NodeId(taint->value), absl::Now(), "Tainted", kTaintKey);
  } else if (const auto* pod = std::get_if<DeletePod>(&action.what)) {
    DeletedPod(*pod, action.id);
  }
}

// Why is known since it was asked for: by now the pod may be gone, and its node's fence too.
void FailoverRecorder::DeletedPod(const DeletePod& call, uint64_t id) {
  const auto failover = deletions_.find(id);
  if (failover == deletions_.end())
    return TellPod(call.pod, call.uid, "Kicked", "Delete",
                   "it crash-looped after an outage of its node; a new pod starts without waiting");
  const NodeId& node = failover->second;
  TellPod(call.pod, call.uid, "FailedOver", "Delete",
          absl::StrCat("moved off node ", NameOf(node).value(), "; see nodefence ", node.value()));
}

// To each pod once for each failover.
void FailoverRecorder::TellLeft(const NodeId& node) {
  for (const auto& [pod, why] : state_.PlanFor(node, {}).left) {
    const PodFacts* facts = objects_.FindPod(pod);
    if (facts == nullptr || !timelines_[node].left.insert(facts->uid).second) continue;
    LogWarn("failover", absl::StrCat("left alone: ", why), {{"node", node.value()}, {"pod", pod.value()}});
    TellPod(pod, facts->uid, "NotFailedOver", "None",
            absl::StrCat("left alone on node ", NameOf(node).value(), ", which is fenced: ", why));
  }
}

void FailoverRecorder::TellPod(const PodId& pod, const Uid& uid, const std::string& reason,
                               const std::string& action, const std::string& text) {
  const std::string& id = pod.value();
  kube::ObjectEvent event;
  event.api_version = "v1";
  event.kind = "Pod";
  event.space = id.substr(0, id.find('/'));
  event.name = id.substr(id.find('/') + 1);
  event.uid = uid.value();
  event.event_kind = kube::EventKind::kWarning;
  event.reason = reason;
  event.action = action;
  event.note = text;
  record_(std::move(event));
}

void FailoverRecorder::TellNode(const NodeId& node, kube::EventKind kind, const std::string& reason,
                                const std::string& text) {
  kube::ObjectEvent event;
  if (const NodeFacts* facts = objects_.FindNode(NameOf(node)); facts != nullptr) {
    event.api_version = "v1";
    event.kind = "Node";
    event.name = NameOf(node).value();
    event.uid = facts->uid.value();
  } else if (const NodeFence* fence = state_.cluster.FindFence(node); fence != nullptr) {
    event.api_version = kNodeFences.ApiVersion();
    event.kind = "NodeFence";
    event.name = node.value();
    event.uid = fence->uid.value();
  } else {
    return;
  }
  event.event_kind = kind;
  event.reason = reason;
  event.action = "Failover";
  event.note = text;
  record_(std::move(event));
}

NodeId FailoverRecorder::FenceOf(const PodId& pod) const {
  const PodFacts* facts = objects_.FindPod(pod);
  if (facts == nullptr) return {};
  for (const auto* instance : InstancesOf(state_.cluster.fences(), facts->node))
    if (state_.cluster.IsCurrent(instance->first)) return instance->first;
  return {};
}

void FailoverRecorder::OnRecord(const NodeId& node, const RecordFacts* facts) {
  if (facts == nullptr) {
    timelines_.erase(node);
    LogInfo("failover", "the NodeFence is gone", {{"node", node.value()}});
  } else if (Timeline& ours = timelines_[node].timeline; facts->timeline.size() > ours.size()) {
    ours = facts->timeline;  // what another replica began
  }
}

Timeline FailoverRecorder::TimelineOf(const NodeId& node) const {
  const auto found = timelines_.find(node);
  return found == timelines_.end() ? Timeline() : found->second.timeline;
}

void FailoverRecorder::Add(const NodeId& node, absl::Time at, const std::string& event,
                           const std::string& text) {
  Timeline& timeline = timelines_[node].timeline;
  if (!timeline.empty() && timeline.back().event == event && timeline.back().text == text) return;
  if (timeline.size() >= kMostTimelineEntries) timeline.pop_back();
  timeline.push_back({at, event, text});
}

// How long it took, phase by phase. What was recorded late, as a watch may be quicker than an answer, took no
// time.
void FailoverRecorder::Moved(const Timeline& timeline) {
  static constexpr std::pair<const char*, const char*> kPhases[] = {{"Decided", "detect"},
                                                                    {"Recorded", "record"},
                                                                    {"Fenced", "fence"},
                                                                    {"Deleted", "delete"},
                                                                    {kMovedEvent, "restart"}};
  const absl::Time began = timeline.front().at;
  absl::Time last = began;
  for (const auto& [event, phase] : kPhases) {
    absl::Time end = last;
    for (const TimelineEntry& entry : timeline)
      if (entry.event == event) end = std::max(end, entry.at);
    took_.emplace_back(phase, end - last);
    last = end;
  }
  took_.emplace_back("all", last - began);
}

void FailoverRecorder::ReportMetrics(Metrics& metrics) {
  metrics.SetGauge("lunkeeper_failover_leading", "Whether this replica is the one that acts", leads_);
  metrics.SetGauge("lunkeeper_failover_synced", "Whether everything that failover watches has been listed",
                   synced_);
  metrics.SetGauge("lunkeeper_failover_decided", "Failovers that this replica has begun", decided_);
  metrics.SetGauge("lunkeeper_failover_refused", "Failovers that were not begun, by limit", refused_);
  metrics.SetGauge("lunkeeper_failover_fence_failures", "Fences that an array did not carry out",
                   fence_failures_);
  metrics.SetGauge("lunkeeper_failover_pods_deleted", "Pods that this replica has deleted", pods_);
  for (const auto& [phase, duration] : std::exchange(took_, {}))
    metrics.ObserveDuration(
        "lunkeeper_failover_phase_seconds",
        "How long failovers took, from the last heartbeat until all ran elsewhere, phase by phase",
        {{"phase", phase}}, duration);
}

}  // namespace lunkeeper::fencing
