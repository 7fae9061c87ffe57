#include "fencing/failover/failover_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "fencing/core/assessment.h"
#include "fencing/core/instances.h"
#include "fencing/core/trace.h"
#include "fencing/failover/clock.h"

// The loop calls in, in the order of a failover:
//
//   OnReport   the core reports a classification, a refusal or a new phase
//   OnAction   the core asks for an action; most of them begin an entry of a timeline
//   OnAnswer   the action's outcome
//   OnRecord   a NodeFence as Kubernetes stores it, perhaps written by another replica
//
// A timeline is kept here and stored with the next write of its NodeFence. It is never read back to decide
// anything; when a new leader takes over, OnRecord lets it continue the stored one.
namespace lunkeeper::fencing {
namespace {

// A failover has about fifteen entries. The limit bounds an object that an array keeps refusing to fence.
constexpr size_t kMostTimelineEntries = 100;

// Actions that succeed several times a second, or that have a line of their own elsewhere.
bool IsRoutine(const Action& action) {
  return std::holds_alternative<WriteLease>(action.what) || std::holds_alternative<Probe>(action.what) ||
         std::holds_alternative<ProbePortals>(action.what) || std::holds_alternative<Notify>(action.what) ||
         std::holds_alternative<Report>(action.what) || std::holds_alternative<AskReplicas>(action.what);
}

// The event of the first phase in which every pod runs elsewhere.
constexpr char kMovedEvent[] = "Moved";

constexpr char kPluginSilentEvent[] = "PluginNotReady";

// Of a report's line in the log, and of its event.
struct KindWords {
  const char* log;
  const char* event;
};
KindWords WordsOf(ReportKind kind) {
  switch (kind) {
    case ReportKind::kClassification:
      return {"seen: ", "NodeSuspected"};
    case ReportKind::kRefused:
      return {"refused: ", "FailoverRefused"};
    case ReportKind::kProgress:
      return {"phase: ", "Failover"};
    case ReportKind::kHeldBack:
      return {"held back: ", "VolumeHeldBack"};
    case ReportKind::kPlugin:
      return {"plugin: ", kPluginSilentEvent};
    case ReportKind::kLeadership:
      return {"leadership: ", "FailoverLeadership"};
  }
  return {};
}

bool IsMoved(const Report& report) {
  return report.phase == Phase::kMoved || report.phase == Phase::kAwaitingNode;
}

std::string WhatIsFenced(const FenceNode& call) {
  if (IsMachineId(call.node)) return "every instance of the machine";
  return absl::StrCat(call.volumes.size(), " volumes");
}

std::string DescribeVotes(const ReplicaVotes& votes) {
  return absl::StrCat("other controllers: ", votes.answered, " do not hear it, ", votes.silent,
                      " gave no answer");
}

size_t CountOf(const VolumesByArray& volumes) {
  size_t count = 0;
  for (const auto& [array, some] : volumes) count += some.size();
  return count;
}

}  // namespace

void FailoverRecorder::SetLeads(bool leads) {
  if (std::exchange(leads_, leads) == leads) return;
  LogInfo("failover", leads ? "this replica leads" : "this replica leads no more");
}

// A report goes to the log, to an event and, if it is a new phase, to the timeline. The core reports each
// text once, so nothing is filtered here.
void FailoverRecorder::OnReport(const Report& report) {
  if (report.kind == ReportKind::kLeadership) return OnLeadership(report.text);
  const bool progress = report.kind == ReportKind::kProgress;
  const KindWords words = WordsOf(report.kind);
  if (report.refusal) ++refused_[{{"limit", std::string(ToWord(*report.refusal))}}];
  LogWarn("failover", absl::StrCat(words.log, report.text), {{"node", report.node.value()}});
  if (progress) {
    Timeline& timeline = timelines_[report.node].timeline;
    const bool moved =
        IsMoved(report) && std::none_of(timeline.begin(), timeline.end(),
                                        [](const auto& entry) { return entry.event == kMovedEvent; });
    AddEntry(report.node, executor_.WallNow(), moved ? kMovedEvent : "Phase", report.text);
    if (moved) MeasurePhases(timeline);
  }
  AddNodeEvent(report.node, progress ? kube::EventKind::kNormal : kube::EventKind::kWarning, words.event,
               report.text);
  if (report.refusal == Refusal::kLeftAlone) ReportPodsLeft(report.node, "from which nothing is moved");
}

// Each replica writes its own, whether it leads or not.
void FailoverRecorder::OnLeadership(const std::string& text) {
  const KindWords words = WordsOf(ReportKind::kLeadership);
  LogWarn("failover", absl::StrCat(words.log, text));
  record_({.api_version = "coordination.k8s.io/v1",
           .kind = kube::kLeaseKind,
           .space = lease_.space,
           .name = lease_.name,
           .event_kind = kube::EventKind::kWarning,
           .reason = words.event,
           .action = "Lead",
           .note = text});
}

// Entries that begin something are made when the core asks for it, as its answer may never come.
void FailoverRecorder::OnAction(const Action& action) {
  if (const auto* put = std::get_if<PutNodeFence>(&action.what)) RecordDecision(put->fence);
  if (const auto* lease = std::get_if<WriteLease>(&action.what)) yields_ += lease->release ? 1 : 0;
  if (const auto* fence = std::get_if<FenceNode>(&action.what))
    AddEntry(RecordOf(fence->node), executor_.WallNow(), "Fencing",
             absl::StrCat(fence->array.value(), ": ", WhatIsFenced(*fence)));
  const auto* call = std::get_if<DeletePod>(&action.what);
  if (call == nullptr || call->why != WhyDeleted::kMoved) return;
  const NodeId node = FenceOf(call->pod);
  if (node.empty()) return;
  deletions_[action.id] = node;
  NodeTimeline& timeline = timelines_[node];
  if (timeline.deleting++ == 0 && timeline.deleted == 0)
    AddEntry(node, executor_.WallNow(), "Deleting", "its pods");
}

// The first write of a NodeFence is the moment of the decision. The cause and the last heartbeat go into the
// timeline here, since the evidence changes from now on.
void FailoverRecorder::RecordDecision(const NodeFence& fence) {
  NodeTimeline& ours = timelines_[fence.node];
  // A write that is repeated is the same decision.
  if (fence.version.empty()) {
    ours.ForgetIfOld(executor_.SteadyNow());
    ours.latest = executor_.SteadyNow();
  }
  if (!ours.timeline.empty() || fence.phase == Phase::kRefused) return;
  const auto evidence = state_.evidence.nodes().find(fence.node);
  if (fence.requested_by.empty() && evidence != state_.evidence.nodes().end() && evidence->second.heard) {
    const absl::Duration silent = ToAbsl(state_.now - evidence->second.heartbeat_at.value_or(state_.now));
    AddEntry(fence.node, executor_.WallNow() - silent, "LastHeard", "its last heartbeat");
  }
  ++decided_;
  const std::string by =
      fence.requested_by.empty() ? "" : absl::StrCat("asked for by ", fence.requested_by, ": ");
  AddEntry(fence.node, executor_.WallNow(), "Decided", absl::StrCat(by, fence.cause));
  if (fence.requested_by.empty() && evidence != state_.evidence.nodes().end() && evidence->second.votes_at)
    AddEntry(fence.node, executor_.WallNow(), "Asked", DescribeVotes(*evidence->second.votes));
  LogWarn("failover", absl::StrCat("decided: ", by, fence.cause),
          {{"node", fence.node.value()}, {"volumes", DescribeVolumes(fence.volumes)}});
}

// `took` counts from the core's decision, so it has the time in which the action waited for a worker, too.
void FailoverRecorder::OnAnswer(const Action& action, const Answer& answer, Span took) {
  const bool ok = answer.done.outcome == Outcome::kOk;
  // A conflict is normal: two replicas may try to take the lease at once, and one of them fails.
  const bool in_order = ok || answer.done.outcome == Outcome::kConflict;
  if ((!IsRoutine(action) || !in_order) && IsNews(action, answer)) {
    Fields fields = {{"took_ms", std::to_string(took.milliseconds())}};
    if (!ok) fields.push_back({"error", std::string(answer.status.message())});
    if (ok) {
      LogInfo("failover", absl::StrCat("done: ", DescribeAction(action)), fields);
    } else {
      LogWarn("failover", absl::StrCat("not done: ", DescribeAction(action)), fields);
    }
  }
  if (ok) RecordSuccess(action, answer);
  const auto* fence = std::get_if<FenceNode>(&action.what);
  if (fence != nullptr && !ok) {
    ++fence_failures_;
    AddEntry(RecordOf(fence->node), executor_.WallNow(), "FenceFailed",
             absl::StrCat(fence->array.value(), ": ", answer.status.message()));
  }
  const auto deletion = deletions_.find(action.id);
  if (deletion == deletions_.end()) return;
  NodeTimeline& timeline = timelines_[deletion->second];
  --timeline.deleting;
  if (ok || answer.done.outcome == Outcome::kGone) {
    ++timeline.deleted;
    ++pods_deleted_;
  }
  if (timeline.deleting == 0)
    AddEntry(deletion->second, executor_.WallNow(), "Deleted", absl::StrCat(timeline.deleted, " pods"));
  deletions_.erase(deletion);
}

// A taint that a webhook refuses is asked for as long as the plugin is silent.
bool FailoverRecorder::IsNews(const Action& action, const Answer& answer) {
  const auto* taint = std::get_if<SetTaint>(&action.what);
  if (taint == nullptr || taint->taint != OurTaint::kPluginNotReady) return true;
  if (answer.done.outcome == Outcome::kOk) return refusals_.erase(taint->node), true;
  const std::string error(answer.status.message());
  return std::exchange(refusals_[taint->node], error) != error;
}

// Only what people look for has an entry or an event. A lease, a probe or a term has its line in the log.
void FailoverRecorder::RecordSuccess(const Action& action, const Answer& answer) {
  if (const auto* put = std::get_if<PutNodeFence>(&action.what)) {
    if (put->fence.version.empty())
      AddEntry(
          put->fence.node, executor_.WallNow(), "Recorded",
          absl::StrCat(CountOf(put->fence.volumes), " volumes on ", put->fence.volumes.size(), " arrays"));
  } else if (const auto* fence = std::get_if<FenceNode>(&action.what)) {
    const std::string text = absl::StrCat(fence->array.value(), ": ", WhatIsFenced(*fence), ", generation ",
                                          answer.done.fence->generation);
    AddEntry(RecordOf(fence->node), executor_.WallNow(), "Fenced", text);
    AddNodeEvent(fence->node, kube::EventKind::kWarning, "Fenced", text);
    ReportPodsLeft(RecordOf(fence->node), "which is fenced");
  } else if (const auto* lift = std::get_if<UnfenceNode>(&action.what)) {
    AddEntry(RecordOf(lift->node), executor_.WallNow(), "Unfenced", lift->array.value());
    AddNodeEvent(lift->node, kube::EventKind::kNormal, "Unfenced", lift->array.value());
  } else if (const auto* taint = std::get_if<SetTaint>(&action.what)) {
    RecordTaint(*taint);
  } else if (const auto* pod = std::get_if<DeletePod>(&action.what)) {
    ReportDeletedPod(*pod, action.id);
  }
}

void FailoverRecorder::RecordTaint(const SetTaint& call) {
  const NodeId machine = MachineId(call.node.value());
  if (call.taint == OurTaint::kFenced) {
    if (!call.value.empty()) AddEntry(NodeId(call.value), executor_.WallNow(), "Tainted", kTaintKey);
  } else if (call.value.empty()) {
    AddNodeEvent(machine, kube::EventKind::kNormal, "PluginReady",
                 absl::StrCat("the taint ", kPluginTaintKey, " is gone: new pods may come"));
  } else {
    AddNodeEvent(machine, kube::EventKind::kWarning, kPluginSilentEvent,
                 absl::StrCat("no controller and no array hears the driver's plugin on this node, so no "
                              "volume can be mounted; until one does, no new pod comes (taint ",
                              kPluginTaintKey, "); see to the plugin's pod"));
  }
}

// The node's fence was noted when the deletion was requested: by now the pod may be gone, and the fence, too.
void FailoverRecorder::ReportDeletedPod(const DeletePod& call, uint64_t id) {
  switch (call.why) {
    case WhyDeleted::kCrashLooped:
      return AddPodEvent(call.pod, call.uid, "Kicked", "Delete",
                         "it crash-looped; a new pod starts without waiting");
    case WhyDeleted::kDeviceFailed:
      return AddPodEvent(call.pod, call.uid, "Kicked", "Delete",
                         "its device failed for good; a new pod gets a new one");
    case WhyDeleted::kMoved:
      const auto failover = deletions_.find(id);
      if (failover == deletions_.end()) return;
      const NodeId& node = failover->second;
      AddPodEvent(call.pod, call.uid, "FailedOver", "Delete",
                  absl::StrCat("moved off node ", NameOf(node).value(), "; see nodefence ", node.value()));
  }
}

// One event for each pod that stays on a failed node, once in each failover.
void FailoverRecorder::ReportPodsLeft(const NodeId& node, const std::string& which) {
  for (const auto& [pod, why] : state_.PlanFor(node, {}).left) {
    const PodFacts* facts = objects_.FindPod(pod);
    if (facts == nullptr || !timelines_[node].left.insert(facts->uid).second) continue;
    LogWarn("failover", absl::StrCat("left alone: ", why), {{"node", node.value()}, {"pod", pod.value()}});
    AddPodEvent(pod, facts->uid, "NotFailedOver", "None",
                absl::StrCat("left alone on node ", NameOf(node).value(), ", ", which, ": ", why));
  }
}

void FailoverRecorder::AddPodEvent(const PodId& pod, const Uid& uid, const std::string& reason,
                                   const std::string& action, const std::string& text) {
  const std::string& id = pod.value();
  record_({.api_version = "v1",
           .kind = "Pod",
           .space = id.substr(0, id.find('/')),
           .name = id.substr(id.find('/') + 1),
           .uid = uid.value(),
           .event_kind = kube::EventKind::kWarning,
           .reason = reason,
           .action = action,
           .note = text});
}

void FailoverRecorder::AddNodeEvent(const NodeId& node, kube::EventKind kind, const std::string& reason,
                                    const std::string& text) {
  kube::ObjectEvent event{.event_kind = kind, .reason = reason, .action = "Failover", .note = text};
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
  record_(std::move(event));
}

NodeId FailoverRecorder::FenceOf(const PodId& pod) const {
  const PodFacts* facts = objects_.FindPod(pod);
  if (facts == nullptr) return {};
  for (const auto* instance : InstancesOf(state_.cluster.fences(), facts->node))
    if (state_.cluster.IsCurrent(instance->first)) return instance->first;
  // A person's fence moves the pods of a machine that is another instance by now.
  const NodeId machine = RecordOf(MachineId(facts->node.value()));
  return IsMachineId(machine) ? NodeId() : machine;
}

NodeId FailoverRecorder::RecordOf(const NodeId& fenced) const {
  if (!IsMachineId(fenced) || state_.cluster.FindFence(fenced) != nullptr) return fenced;
  for (const auto* instance : InstancesOf(state_.cluster.fences(), NameOf(fenced)))
    if (IsOfMachine(instance->second)) return instance->first;
  return fenced;
}

// The longer timeline wins: it is the one that was continued. A replica that does not lead has none of its
// own. What is old is of no record that is only seen now, such as one that a person made.
void FailoverRecorder::OnRecord(const NodeId& node, const RecordFacts* facts) {
  if (facts == nullptr) {
    timelines_.erase(node);
    return LogInfo("failover", "the NodeFence is gone", {{"node", node.value()}});
  }
  NodeTimeline& ours = timelines_[node];
  if (state_.cluster.FindFence(node) == nullptr) ours.ForgetIfOld(executor_.SteadyNow());
  // Another replica began this failover.
  if (facts->timeline.size() > ours.timeline.size()) ours.timeline = facts->timeline;
}

Timeline FailoverRecorder::TimelineOf(const NodeId& node) const {
  const auto found = timelines_.find(node);
  return found == timelines_.end() ? Timeline() : found->second.timeline;
}

// Repetitions of the last entry are dropped: actions are repeated until they succeed. At the limit the last
// entry is replaced, so that the beginning of the failover and its newest state both remain.
void FailoverRecorder::AddEntry(const NodeId& node, absl::Time at, const std::string& event,
                                const std::string& text) {
  timelines_[node].latest = executor_.SteadyNow();
  Timeline& timeline = timelines_[node].timeline;
  if (!timeline.empty() && timeline.back().event == event && timeline.back().text == text) return;
  if (timeline.size() >= kMostTimelineEntries) timeline.pop_back();
  timeline.push_back({at, event, text});
}

// Splits the failover's duration into phases. A phase ends with the last entry of its event. When entries are
// out of order, since a watch can be quicker than an answer, a phase takes no time instead of a negative one.
void FailoverRecorder::MeasurePhases(const Timeline& timeline) {
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
  const auto put = [&](const char* name, const char* help, double count) {
    metrics.SetCounter(name, help, Metrics::Series{{Metrics::Labels(), count}});
  };
  put("lunkeeper_failover_decided_total", "Failovers that this replica has begun", decided_);
  put("lunkeeper_failover_fence_failures_total", "Fences that an array did not carry out", fence_failures_);
  put("lunkeeper_failover_pods_deleted_total", "Pods that this replica has deleted", pods_deleted_);
  put("lunkeeper_failover_yields_total", "How often this replica let a better placed one lead", yields_);
  metrics.SetCounter("lunkeeper_failover_refused_total", "Failovers that were not begun, by safety limit",
                     refused_);
  for (const auto& [phase, duration] : std::exchange(took_, {}))
    metrics.ObserveDuration(
        "lunkeeper_failover_phase_seconds",
        "How long failovers took, from the last heartbeat until all ran elsewhere, phase by phase",
        {{"phase", phase}}, duration);
}

}  // namespace lunkeeper::fencing
