#include "fencing/failover/failover.h"

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <future>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/tcp_prober.h"
#include "fencing/core/core.h"
#include "fencing/failover/array_actions.h"
#include "fencing/failover/array_hub.h"
#include "fencing/failover/clock.h"
#include "fencing/failover/failover_metrics.h"
#include "fencing/failover/failover_recorder.h"
#include "fencing/failover/fence_board.h"
#include "fencing/failover/kube_actions.h"
#include "fencing/failover/loop.h"
#include "fencing/failover/object_cache.h"
#include "fencing/failover/status_lines.h"
#include "fencing/failover/volume_locks.h"
#include "fencing/failover/watches.h"

namespace lunkeeper::fencing {
namespace {

constexpr absl::Duration kReadLease = absl::Milliseconds(250);  // a silent leader is followed that much later
constexpr Span kApiSilence = 3_s;
constexpr Span kLookAround = 1_s;        // for arrays that came or went
constexpr Span kSyncGracePeriod = 15_s;  // before it is said that failover does not act yet
constexpr std::chrono::seconds kStatusTimeout(2);
constexpr size_t kMostEvents = 500;  // that wait to be recorded
constexpr Span kEventDelay = 2_s;    // with which they wait for calls that failover needs

class Runner final : public Failover {
 public:
  Runner(const FailoverOptions& options, lunkeeper::Arrays& arrays, kube::KubeClient& client)
      : options_(options),
        kube_(client, options.lease, options.self, ToAbsl(options.settings.lease)),
        core_(options.settings, options.self),
        objects_([this](auto what) { Feed(now_, std::move(what)); }),
        recorder_(core_.state(), objects_, [this](auto event) { Record(std::move(event)); }),
        arrays_(arrays, [this](ArrayPoll poll) { OnArrayPoll(std::move(poll)); }) {
    arrays_.Refresh();
    watches_ = std::make_unique<Watches>(client, Handlers());
    locks_ = std::make_unique<VolumeLocks>(client, Duties());
    lease_read_ = std::make_unique<Periodic>(kReadLease, [this] { ReadLease(); });
    started_ = MonotonicNow();
    loop_.Start(options_.settings.tick, [this](Instant now) { Tick(now); });
  }

  ~Runner() override {
    loop_.Stop();
    watches_.reset();
    locks_.reset();
    lease_read_.reset();
    for (auto* workers : {&api_workers_, &lease_workers_, &event_workers_}) {
      workers->stop();
      workers->join();
    }
    kube_.LeaveLease();
  }

  FencesByArray OnHeartbeat(Heartbeat heartbeat) override {
    FencesByArray fences = board_.Of(heartbeat.node);
    loop_.Post(
        [this, heartbeat = std::move(heartbeat)](Instant now) mutable { Feed(now, std::move(heartbeat)); },
        Wake::kLater);
    return fences;
  }
  void OnClosed(const NodeId& node) override {
    loop_.Post([this, node](Instant now) { Feed(now, StreamClosed{node}); });
  }
  void ReportMetrics(Metrics& metrics) override;
  std::vector<std::string> Status() override;

 private:
  // The loop's thread, all of these.
  void Feed(Instant now, decltype(Event::what) what);
  void Tick(Instant now);
  void OnLease(Instant now, const absl::StatusOr<LeaseSeen>& seen);
  void OnRecord(const std::string& name, const RecordFacts* facts);
  void Do(const Action& action);
  void Perform(const Action& action, const WriteLease& call);
  void Perform(const Action& action, const BeginTerm& call);
  void Perform(const Action& action, const Probe& call);
  void Perform(const Action& action, const PutNodeFence& call);
  void Perform(const Action& action, const RemoveNodeFence& call);
  void Perform(const Action& action, const FenceNode& call);
  void Perform(const Action& action, const UnfenceNode& call);
  void Perform(const Action& action, const SetTaint& call);
  void Perform(const Action& action, const DeletePod& call);
  void Perform(const Action&, const Notify& call) { board_.Fenced(call.array, call.fence, now_); }
  void Perform(const Action&, const Report& call) { recorder_.Said(call); }
  void Record(kube::ObjectEvent event);
  void SendEvents();

  WatchHandlers Handlers();
  LockDuties Duties();
  void CallApi(const Action& action, std::function<Answer()> call);
  void CallArray(const Action& action, const ArrayId& array, std::function<Answer(FenceControl&)> call);

  // Any thread.
  void ReadLease();
  void OnArrayPoll(ArrayPoll poll);
  void Answered(const Action& action, Answer answer, Instant asked);

  const FailoverOptions options_;
  KubeActions kube_;
  Loop loop_;
  FenceBoard board_;
  // Until when this replica may write, by its last step.
  std::atomic<Instant> acts_until_ = Instant();  // long ago: it does not
  std::atomic<int> waiting_calls_ = 0;
  std::atomic<size_t> waiting_events_ = 0;

  // Of the loop.
  Core core_;
  ObjectCache objects_;
  FailoverRecorder recorder_;
  std::vector<kube::ObjectEvent> events_;  // not sent yet, the first since `events_since_`
  Instant now_, started_, events_since_;
  std::optional<Instant> alive_at_, looked_at_;
  bool synced_ = false, complained_ = false;

  // What has threads, and is stopped first.
  ArrayHub arrays_;
  std::unique_ptr<Prober> prober_ = MakeProber();
  boost::asio::thread_pool api_workers_{kActionsAtOnce}, lease_workers_{1}, event_workers_{1};
  std::unique_ptr<Watches> watches_;
  std::unique_ptr<VolumeLocks> locks_;
  std::unique_ptr<Periodic> lease_read_;
};

void Runner::Feed(Instant now, decltype(Event::what) what) {
  now_ = now;
  const auto actions = core_.Step({now, std::move(what)});
  acts_until_ = core_.Leads() ? now + options_.settings.lease_margin : Instant();
  for (const Action& action : actions) Do(action);
}

void Runner::Tick(Instant now) {
  if (!looked_at_ || now - *looked_at_ >= kLookAround) {
    for (const ArrayId& array : arrays_.Refresh()) Feed(now, ArrayGone{array});
    looked_at_ = now;
  }
  for (const ArrayId& array : arrays_.Lost(now)) Feed(now, ArrayLost{array});
  Feed(now, fencing::Tick{});
  SendEvents();
  recorder_.Leads(core_.Leads());
  recorder_.Synced(synced_);
  if (synced_ || complained_ || now - started_ < kSyncGracePeriod) return;
  complained_ = true;
  LogError("failover",
           "failover does not act, and only volumes are served: these cannot be watched; is the "
           "CustomResourceDefinition "
           "of NodeFences installed, and may this account list them?",
           {{"missing", absl::StrJoin(watches_->missing(), " ")}});
}

void Runner::ReportMetrics(Metrics& metrics) {
  loop_.Post([this, &metrics](Instant) {
    recorder_.ReportMetrics(metrics);
    ReportFailoverMetrics(core_.state(), metrics);
  });
}

std::vector<std::string> Runner::Status() {
  auto lines = std::make_shared<std::promise<std::vector<std::string>>>();
  auto answer = lines->get_future();
  loop_.Post([this, lines](Instant) {
    auto missing = absl::StrJoin(watches_->missing(), " ");
    lines->set_value(StatusLines(core_, missing));
  });
  if (answer.wait_for(kStatusTimeout) == std::future_status::ready) return answer.get();
  return {"failover does not answer"};
}

WatchHandlers Runner::Handlers() {
  return {.post =
              [this](std::function<void()> job, Wake wake) {
                loop_.Post(
                    [this, job = std::move(job)](Instant now) {
                      now_ = now;
                      job();
                    },
                    wake);
              },
          .objects = objects_,
          .on_record = [this](const auto& name, const auto* facts) { OnRecord(name, facts); },
          .on_kubelet = [this](const auto& node) { Feed(now_, KubeletLease{NodeName(node)}); },
          .on_synced =
              [this] {
                if (!synced_ && complained_) LogInfo("failover", "everything is watched now; failover acts");
                synced_ = true;
                Feed(now_, ApiSynced{});
              }};
}

LockDuties Runner::Duties() {
  return {
      .post = [this](std::function<void()> job) { loop_.Post([job = std::move(job)](Instant) { job(); }); },
      .may_write = [this] { return MonotonicNow() < acts_until_.load() && waiting_calls_ == 0; },
      .has_array = [this](const ArrayId& array) { return arrays_.Has(array); },
      .cluster = core_.state().cluster,
      .objects = objects_};
}

void Runner::ReadLease() {
  auto seen = kube_.ReadLease();
  loop_.Post([this, seen = std::move(seen)](Instant now) { OnLease(now, seen); });
}

void Runner::OnLease(Instant now, const absl::StatusOr<LeaseSeen>& seen) {
  if (seen.ok()) Feed(now, *seen);
  if (seen.ok() && watches_->missing().empty()) {
    alive_at_ = now;
    Feed(now, ApiAlive{});
  } else if (!alive_at_ || now - *alive_at_ > kApiSilence) {
    Feed(now, ApiLost{});
  }
}

void Runner::OnRecord(const std::string& name, const RecordFacts* facts) {
  const NodeId node(name);
  recorder_.OnRecord(node, facts);
  if (facts != nullptr) {
    Feed(now_, FenceSeen{facts->fence});
  } else {
    Feed(now_, FenceGone{node});
  }
}

void Runner::OnArrayPoll(ArrayPoll poll) {
  board_.On(poll.view);
  loop_.Post([this, poll = std::move(poll)](Instant now) mutable {
    if (!arrays_.Has(poll.view.array)) return;  // it was removed meanwhile
    locks_->Show(poll, now);
    Feed(now, std::move(poll.view));
    for (const VolumeWanted& wanted : poll.wanted) Feed(now, wanted);
    Feed(now, std::move(poll.heartbeats));
  });
}

void Runner::Record(kube::ObjectEvent event) {
  if (events_.size() + waiting_events_ >= kMostEvents) return;
  if (events_.empty()) events_since_ = now_;
  events_.push_back(std::move(event));
}

// After the calls that failover needs, which they would slow down.
void Runner::SendEvents() {
  if (events_.empty() || (waiting_calls_ > 0 && now_ - events_since_ < kEventDelay)) return;
  waiting_events_ += events_.size();
  for (kube::ObjectEvent& event : std::exchange(events_, {}))
    boost::asio::post(event_workers_, [this, event = std::move(event)] {
      kube_.Record(event);
      --waiting_events_;
    });
}

void Runner::Do(const Action& action) {
  recorder_.Asked(action);
  std::visit([&](const auto& call) { Perform(action, call); }, action.what);
}

void Runner::Answered(const Action& action, Answer answer, Instant asked) {
  answer.done.action = action.id;
  loop_.Post([this, action, answer = std::move(answer), asked](Instant now) {
    now_ = now;
    recorder_.Answered(action, answer, now - asked);
    Feed(now, answer.done);
  });
}

void Runner::CallApi(const Action& action, std::function<Answer()> call) {
  ++waiting_calls_;
  boost::asio::post(api_workers_, [this, action, call = std::move(call), asked = now_] {
    const bool acts = MonotonicNow() < acts_until_.load();
    Answered(action, acts ? call() : FromApi(absl::CancelledError("this replica leads no more")), asked);
    --waiting_calls_;
  });
}

void Runner::CallArray(const Action& action, const ArrayId& array,
                       std::function<Answer(FenceControl&)> call) {
  arrays_.Post(array, [this, action, call = std::move(call), asked = now_](FenceControl* at) {
    if (at == nullptr)
      return Answered(action, FromApi(absl::UnavailableError("it is not among the arrays now")), asked);
    Answered(action, call(*at), asked);
  });
}

void Runner::Perform(const Action& action, const WriteLease& call) {
  boost::asio::post(lease_workers_, [this, action, call] { Answered(action, kube_.Run(call), call.sent); });
}

void Runner::Perform(const Action& action, const BeginTerm& call) {
  CallArray(action, call.array, [this, call](FenceControl& at) { return Run(call, at, options_.self); });
}

void Runner::Perform(const Action& action, const FenceNode& call) {
  CallArray(action, call.array, [this, call](FenceControl& at) {
    Answer answer = Run(call, at);
    if (answer.done.fence) board_.Fenced(call.array, *answer.done.fence, MonotonicNow());
    return answer;
  });
}

void Runner::Perform(const Action& action, const UnfenceNode& call) {
  CallArray(action, call.array, [this, call](FenceControl& at) {
    Answer answer = Run(call, at);
    if (answer.done.outcome == Outcome::kOk) board_.Unfenced(call.array, call.node, MonotonicNow());
    return answer;
  });
}

void Runner::Perform(const Action&, const Probe& call) {
  const NodeFacts* facts = objects_.FindNode(NameOf(call.node));
  if (facts == nullptr || facts->address.empty()) return;
  prober_->Probe(facts->address, facts->kubelet_port, [this, node = call.node](bool answered) {
    loop_.Post([this, node, answered](Instant now) { Feed(now, ProbeAnswer{node, answered}); });
  });
}

void Runner::Perform(const Action& action, const PutNodeFence& call) {
  CallApi(action, [this, call, timeline = recorder_.TimelineOf(call.fence.node)] {
    return kube_.Run(call, timeline);
  });
}

void Runner::Perform(const Action& action, const RemoveNodeFence& call) {
  CallApi(action, [this, call] { return kube_.Run(call); });
}

void Runner::Perform(const Action& action, const SetTaint& call) {
  const NodeFacts* facts = objects_.FindNode(call.node);
  if (facts == nullptr || facts->version != call.expected)
    return Answered(action, FromApi(absl::AbortedError("the node has changed")), now_);
  CallApi(action,
          [this, call, uid = facts->uid, taints = facts->taints] { return kube_.Run(call, uid, taints); });
}

void Runner::Perform(const Action& action, const DeletePod& call) {
  CallApi(action, [this, call] { return kube_.Run(call); });
}

}  // namespace

std::unique_ptr<Failover> StartFailover(const FailoverOptions& options, lunkeeper::Arrays& arrays,
                                        kube::KubeClient& client) {
  return std::make_unique<Runner>(options, arrays, client);
}

}  // namespace lunkeeper::fencing
