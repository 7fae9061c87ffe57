#include "fencing/failover/failover.h"

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/periodic.h"
#include "devices/node_id.h"
#include "fencing/core/core.h"
#include "fencing/failover/action_runner.h"
#include "fencing/failover/array_hub.h"
#include "fencing/failover/details_board.h"
#include "fencing/failover/event_queue.h"
#include "fencing/failover/failover_metrics.h"
#include "fencing/failover/failover_recorder.h"
#include "fencing/failover/fence_board.h"
#include "fencing/failover/health_reporter.h"
#include "fencing/failover/heard_nodes.h"
#include "fencing/failover/limits_board.h"
#include "fencing/failover/loop.h"
#include "fencing/failover/object_cache.h"
#include "fencing/failover/sight_board.h"
#include "fencing/failover/status_lines.h"
#include "fencing/failover/volume_lock_publisher.h"
#include "fencing/failover/watches.h"

// How the parts are connected. Everything from the loop to the right of it runs on the loop's thread, one job
// after another, and never blocks:
//
//   nodes' heartbeats --> FenceBoard (answers at once)
//          |
//          v
//   arrays' polls ------> Loop --> ObjectCache --> Core --> actions --> ActionRunner --> API server, arrays
//   informers ----------> (jobs)                    |                        |
//   lease reader -------> (ticks)                   v                        |
//          ^                                FailoverRecorder --> EventQueue  |
//          +----------------- answers ---------------------------------------+
//
// A tick comes four times a second. With each tick the core looks at the whole state again, so a lost event
// delays a decision and never prevents it.
//
// If the process is killed, the lease expires, and another replica takes over with what is in Kubernetes and
// on the arrays. In an orderly end the destructor stops the loop first, then everything that posts to it, and
// releases the lease when each write has ended or was given up. Answers of other replicas are awaited last.
namespace lunkeeper::fencing {
namespace {

// The lease is a channel of its own: a new leader notices an expired lease at most this much later.
constexpr absl::Duration kReadLeaseEvery = absl::Milliseconds(250);
// After twelve failed reads of the lease in a row the API server counts as lost.
constexpr Span kApiSilence = 3_s;
// How soon an array that was configured or removed is noticed.
constexpr Span kRefreshArraysEvery = 1_s;
// A first list of a large cluster takes some seconds. After this time the log says that failover does not
// act.
constexpr Span kSyncGracePeriod = 15_s;
// A watch that has just begun may lag behind. After this time, what is not there is taken for not there.
constexpr Span kSettled = 10_s;

class FailoverController final : public Failover {
 public:
  FailoverController(const FailoverOptions& options, lunkeeper::Arrays& arrays, kube::KubeClient& client)
      : options_(options),
        executor_(options.executor),
        kube_(client, options.lease, options.self, ToAbsl(options.settings.lease), executor_,
              {.may_write = [this] { return actions_.MayWrite(); }}),
        loop_(executor_),
        core_(options.settings, options.self),
        objects_([this](auto what) { OnObject(std::move(what)); }),
        recorder_(
            core_.state(), objects_, options.lease,
            [this](auto event) { events_.AddEvent(std::move(event), now_); }, executor_),
        health_(core_.state(), objects_, WatchFullPools(arrays, executor_),
                [this](auto event) { events_.AddEvent(std::move(event), now_); }),
        actions_(MakeActionInputs()),
        arrays_(
            arrays, [this](ArrayPoll poll) { OnArrayPoll(std::move(poll)); }, executor_) {
    arrays_.RefreshArrays();
    watches_ = std::make_unique<Watches>(client, MakeHandlers(), executor_);
    locks_ = std::make_unique<VolumeLockPublisher>(client, MakeLockInputs());
    lease_read_ = std::make_unique<Periodic>(
        kReadLeaseEvery, [this] { ReadLease(); }, executor_);
    started_ = NowOn(executor_);
    loop_.Start(options_.settings.tick, [this](Instant now) { RunTick(now); });
  }

  ~FailoverController() override {
    loop_.Stop();
    watches_.reset();
    locks_.reset();
    lease_read_.reset();
    actions_.Stop();
    events_.Stop();
    kube_.LeaveLease();
  }

  // On gRPC's threads, all the time. The board answers at once; the core gets it with its next tick.
  FencesByArray OnHeartbeat(Heartbeat heartbeat) override {
    FencesByArray fences = board_.FencesOf(heartbeat.node);
    heard_.NoteHeartbeat(heartbeat.node, NowOn(executor_));
    loop_.PostJob([this, heartbeat = std::move(heartbeat)](
                      Instant now) mutable { FeedCore(now, std::move(heartbeat)); },
                  Wake::kLater);
    return fences;
  }
  void OnDetails(const Heartbeat& heartbeat, const DeviceDetails& details) override {
    details_.OnDetails(heartbeat.node, heartbeat.present, details, NowOn(executor_));
  }
  LimitsByVolume LimitsOf(const NodeId& node) override { return limits_.LimitsOf(node); }
  void OnClosed(const NodeId& node) override {
    heard_.NoteEnd(node, NowOn(executor_));
    loop_.PostJob([this, node](Instant now) { FeedCore(now, StreamClosed{node}); });
  }
  std::optional<bool> Hears(const NodeId& node) override { return heard_.Hears(node, NowOn(executor_)); }
  bool KernelAnswers(const NodeId& node) override { return heard_.KernelAnswers(node, NowOn(executor_)); }
  std::optional<ReplicaSight> Sight() override { return sights_.Latest(NowOn(executor_)); }
  std::string ReplicaName() override { return options_.self; }
  std::set<std::string> RemovedArrays() override {
    return options_.removed_arrays ? options_.removed_arrays() : std::set<std::string>();
  }
  void ChangeSettings(const Settings& settings) override {
    heard_.SetProbation(settings.probation);
    loop_.PostJob([this, settings](Instant) { core_.ChangeSettings(settings); });
  }
  void ReportMetrics(Metrics& metrics) override;
  std::vector<std::string> ReportStatus() override;
  absl::StatusOr<std::vector<VolumeUse>> ListUses(const std::string& array) override;
  KnownUse FindUse(const std::string& machine, const VolumeId& volume) override;

 private:
  // On the loop's thread.
  void FeedCore(Instant now, decltype(Event::what) what);
  void RunTick(Instant now);
  void OnLease(Instant now, const absl::StatusOr<LeaseSeen>& seen);
  void OnObject(decltype(Event::what) what);
  void OnRecord(const std::string& name, const RecordFacts* facts);
  void Distrust(const std::string& machine) const;
  void DeleteLocksOfRemoved(Instant now);
  void ComplainIfNotSynced(Instant now);

  // In the constructor.
  ActionInputs MakeActionInputs();
  WatchHandlers MakeHandlers();
  LockPublisherInputs MakeLockInputs();

  // On any thread.
  void ReadLease();
  void OnArrayPoll(ArrayPoll poll);
  void OnAnswer(const Action& action, Answer answer, Instant asked);

  const FailoverOptions options_;
  Executor& executor_;
  KubeActions kube_;
  Loop loop_;
  FenceBoard board_;
  HeardNodes heard_{options_.settings.probation};
  LimitsBoard limits_;
  DetailsBoard details_;
  SightBoard sights_;

  // Used by the loop's thread only, but for what the classes say.
  Core core_;
  ObjectCache objects_;
  EventQueue events_{kube_, executor_};
  FailoverRecorder recorder_;
  HealthReporter health_;
  Instant now_, started_;
  std::optional<Instant> alive_at_, arrays_refreshed_at_;
  bool synced_ = false, complained_ = false;
  std::set<NodeId> fenced_;

  // They have threads that use the members above. The runner comes before the hub, whose workers run its
  // calls.
  ActionRunner actions_;
  ArrayHub arrays_;
  std::unique_ptr<Watches> watches_;
  std::unique_ptr<VolumeLockPublisher> locks_;
  std::unique_ptr<Periodic> lease_read_;
};

// One step of the core. The right to write is renewed before the step's actions run: they are this leader's
// own.
void FailoverController::FeedCore(Instant now, decltype(Event::what) what) {
  now_ = now;
  const auto actions = core_.Step({now, std::move(what)});
  actions_.AllowWritesUntil(core_.Leads() ? now + options_.settings.lease_margin : Instant());
  for (const Action& action : actions) {
    recorder_.OnAction(action);
    if (const auto* report = std::get_if<Report>(&action.what)) recorder_.OnReport(*report);
    actions_.RunAction(action, now_);
  }
}

// What has changed by the mere passing of time goes in first, so that the tick decides on all of it.
void FailoverController::RunTick(Instant now) {
  if (!arrays_refreshed_at_ || now - *arrays_refreshed_at_ >= kRefreshArraysEvery) {
    for (const ArrayId& array : arrays_.RefreshArrays()) FeedCore(now, ArrayGone{array});
    for (const ArrayId& array : arrays_.ListArrays()) FeedCore(now, ArrayConfigured{array});
    DeleteLocksOfRemoved(now);
    core_.Leads() ? health_.ReportChanges() : health_.StopReporting();
    arrays_refreshed_at_ = now;
  }
  for (const ArrayId& array : arrays_.LostArrays(now)) FeedCore(now, ArrayLost{array});
  FeedCore(now, fencing::Tick{});
  sights_.Note(core_.Sight(), now);
  events_.SendEvents(now, actions_.IsBusy());
  recorder_.SetLeads(core_.Leads());
  recorder_.SetSynced(synced_ && watches_->missing().empty());
  ComplainIfNotSynced(now);
}

void FailoverController::ComplainIfNotSynced(Instant now) {
  if (synced_ || complained_ || now - started_ < kSyncGracePeriod) return;
  complained_ = true;
  LogError("failover",
           "failover does not act, and only volumes are served: these cannot be watched; is the "
           "CustomResourceDefinition of NodeFences installed, and may this account list them?",
           {{"missing", absl::StrJoin(watches_->missing(), " ")}});
  recorder_.OnLeadership(
      absl::StrCat("does not act: not watched yet: ", absl::StrJoin(watches_->missing(), " ")));
}

// Fills the metrics in when the loop comes to it; a scrape shows them as of a moment ago.
void FailoverController::ReportMetrics(Metrics& metrics) {
  loop_.PostJob([this, &metrics](Instant) {
    recorder_.ReportMetrics(metrics);
    ReportFailoverMetrics(core_.state(), metrics);
  });
}

// Nothing is granted there any more, and no poll will ever say so.
void FailoverController::DeleteLocksOfRemoved(Instant now) {
  for (const std::string& array : RemovedArrays()) {
    ArrayPoll nothing;
    nothing.view.array = ArrayId(array);
    locks_->OnArrayPoll(nothing, now);
  }
}

std::vector<std::string> FailoverController::ReportStatus() {
  using Lines = std::vector<std::string>;
  auto lines = loop_.AskLoop<Lines>([this] {
    Lines all = StatusLines(core_, absl::StrJoin(watches_->missing(), " "));
    for (const std::string& array : RemovedArrays())
      all.push_back(RemovedArrayLine(array, UsesOf(core_.state(), ArrayId(array))));
    return all;
  });
  return lines.value_or(Lines{"failover does not answer"});
}

absl::StatusOr<std::vector<VolumeUse>> FailoverController::ListUses(const std::string& array) {
  using Uses = absl::StatusOr<std::vector<VolumeUse>>;
  auto uses = loop_.AskLoop<Uses>([this, array]() -> Uses {
    if (synced_) return UsesOf(core_.state(), ArrayId(array));
    return absl::UnavailableError(absl::StrCat(
        "who uses array ", array, " is not known before everything has been listed; still missing: ",
        absl::StrJoin(watches_->missing(), " "), "; try again"));
  });
  if (uses) return *std::move(uses);
  return absl::UnavailableError("failover does not answer, and knows who uses the array; try again");
}

KnownUse FailoverController::FindUse(const std::string& machine, const VolumeId& volume) {
  const auto known = loop_.AskLoop<KnownUse>([this, machine, volume]() -> KnownUse {
    if (objects_.IsUsedOn(NodeName(machine), volume)) return {PodUse::kSome};
    if (watches_->InStepFor() < kSettled) return {PodUse::kUnknown};
    return {PodUse::kNone, objects_.ListVolumesOf(volume)};
  });
  // A loop that is kept busy knows nothing, but the API server does: it is asked.
  return known.value_or(KnownUse{.use = PodUse::kNone, .names = {}, .knows_names = false});
}

ActionInputs FailoverController::MakeActionInputs() {
  return {.kube = kube_,
          .arrays = arrays_,
          .board = board_,
          .objects = objects_,
          .self = options_.self,
          .timeline_of = [this](const NodeId& node) { return recorder_.TimelineOf(node); },
          .answered = [this](const Action& action, Answer answer,
                             Instant asked) { OnAnswer(action, std::move(answer), asked); },
          .ask_replicas = options_.ask_replicas,
          .probed =
              [this](const auto& answer) {
                if (const auto* probe = std::get_if<ProbeAnswer>(&answer); probe && probe->answered)
                  heard_.NoteAnswer(probe->node, NowOn(executor_));
                loop_.PostJob([this, answer](Instant now) { FeedCore(now, answer); });
              },
          .executor = executor_,
          .prober = options_.make_prober()};
}

// The handlers run as jobs of the loop, so now_ is the time at which the change arrived.
WatchHandlers FailoverController::MakeHandlers() {
  return {.post =
              [this](std::function<void()> job, Wake wake) {
                loop_.PostJob(
                    [this, job = std::move(job)](Instant now) {
                      now_ = now;
                      job();
                    },
                    wake);
              },
          .objects = objects_,
          .own_namespace = options_.lease.space,
          .on_record = [this](const auto& name, const auto* facts) { OnRecord(name, facts); },
          .on_kubelet =
              [this](const auto& node, const auto& renewal) {
                FeedCore(now_, KubeletLease{NodeName(node), Version(renewal), RenewalTime(renewal)});
              },
          .on_synced =
              [this] {
                if (!synced_ && complained_) LogInfo("failover", "everything is watched now; failover acts");
                synced_ = true;
                FeedCore(now_, ApiSynced{});
              }};
}

LockPublisherInputs FailoverController::MakeLockInputs() {
  return {
      .post =
          [this](std::function<void()> job) { loop_.PostJob([job = std::move(job)](Instant) { job(); }); },
      .may_write = [this] { return actions_.MayWrite() && !actions_.IsBusy(); },
      .has_array = [this](const ArrayId& array) { return arrays_.HasArray(array); },
      .cluster = core_.state().cluster,
      .objects = objects_,
      .executor = executor_,
      .find_detail = [this](const auto& node, const auto& volume) { return details_.Find(node, volume); }};
}

void FailoverController::ReadLease() {
  auto seen = kube_.ReadLease();
  loop_.PostJob([this, seen = std::move(seen)](Instant now) { OnLease(now, seen); });
}

// A lease that can be read shows that the API server answers. It counts as alive only while every watch
// stands, too: a server that answers reads but delivers no changes leaves us blind.
void FailoverController::OnLease(Instant now, const absl::StatusOr<LeaseSeen>& seen) {
  if (seen.ok()) FeedCore(now, *seen);
  if (seen.ok() && watches_->missing().empty()) {
    alive_at_ = now;
    FeedCore(now, ApiAlive{});
  } else if (!alive_at_ || now - *alive_at_ > kApiSilence) {
    FeedCore(now, ApiLost{});
  }
}

void FailoverController::OnObject(decltype(Event::what) what) {
  if (const auto* gone = std::get_if<NodeGone>(&what)) Distrust(gone->node.value());
  FeedCore(now_, std::move(what));
}

void FailoverController::Distrust(const std::string& machine) const {
  if (options_.distrust) options_.distrust(machine);
}

// The recorder first: the core's step may end the failover, whose timeline it still needs.
void FailoverController::OnRecord(const std::string& name, const RecordFacts* facts) {
  const NodeId node(name);
  kube_.NoteRecord(node, facts);
  if (facts != nullptr && facts->IsReleased()) facts = nullptr;
  recorder_.OnRecord(node, facts);
  if (facts == nullptr) fenced_.erase(node);
  if (facts != nullptr && fenced_.insert(node).second) Distrust(MachineOf(node));  // once for each fence
  facts != nullptr ? FeedCore(now_, FenceSeen{facts->fence}) : FeedCore(now_, FenceGone{node});
}

// On the array's thread. The boards take fences and limits at once: nodes learn of them without the loop.
void FailoverController::OnArrayPoll(ArrayPoll poll) {
  board_.OnArrayView(poll.view);
  limits_.OnLimits(poll.view.array, std::move(poll.limits));
  loop_.PostJob([this, poll = std::move(poll)](Instant now) mutable {
    if (!arrays_.HasArray(poll.view.array)) return;  // it was removed meanwhile
    locks_->OnArrayPoll(poll, now);
    FeedCore(now, std::move(poll.view));
    for (const VolumeWanted& wanted : poll.wanted) FeedCore(now, wanted);
  });
}

void FailoverController::OnAnswer(const Action& action, Answer answer, Instant asked) {
  answer.done.action = action.id;
  loop_.PostJob([this, action, answer = std::move(answer), asked](Instant now) {
    now_ = now;
    recorder_.OnAnswer(action, answer, now - asked);
    watches_->NoteOutcome(action, answer.done.outcome);
    FeedCore(now, answer.done);
  });
}

}  // namespace

std::unique_ptr<Failover> StartFailover(const FailoverOptions& options, lunkeeper::Arrays& arrays,
                                        kube::KubeClient& client) {
  return std::make_unique<FailoverController>(options, arrays, client);
}

}  // namespace lunkeeper::fencing
