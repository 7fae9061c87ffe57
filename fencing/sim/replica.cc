// Each life of a replica is a process of its own. A crash kills it: nothing of it reaches the world from then
// on, and it ends by itself, out of sight, while the next life begins with nothing that the former knew.

#include "fencing/sim/replica.h"

#include <set>
#include <utility>

#include "devices/array/array_router.h"
#include "fencing/coordinator/known_replicas.h"
#include "fencing/failover/pod_use_check.h"
#include "fencing/sim/api.h"
#include "fencing/sim/api_client.h"
#include "fencing/sim/array_client.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/machine.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kNoticedStall = 1200_ms;
constexpr Span kProbe = 400_ms;  // base/tcp_prober.cc
constexpr Span kLeadsFor = 3300_ms, kMostDeaf = 5_s, kKubeletLooks = 1_s;
constexpr uint32_t kPort = 7443;
constexpr size_t kServing = 256;  // threads of its server
// A replica that has answered nothing for two seconds, by the clock of the one that asks, is not waited for.
constexpr Span kAwaited = 1950_ms;

std::string HostAt(Endpoint endpoint) {
  return "10.0." + std::to_string(endpoint / 256) + "." + std::to_string(endpoint % 256);
}

// A connect to a kernel: a machine's, or that of an array's portal. No answer comes to a process that is
// dead, or when nobody waits for it any more.
class SimulatedProber final : public Prober {
 public:
  explicit SimulatedProber(Process& process) : process_(process) {}
  ~SimulatedProber() override { *waits_ = false; }
  void Probe(const std::string& address, uint16_t, std::function<void(ProbeResult)> done) override {
    World& world = process_.world();
    const bool forged = world.Has(Mutant::kProbeForged) && world.now() > WorldTime(15_s);
    for (auto& machine : world.machines) {
      const bool alive = world.Has(Mutant::kEndInOrderIsAlive) && machine->ended_in_order();
      if (machine->name().value() == address)
        Connect(
            machine->endpoint(), [&at = *machine] { return at.AnswersProbe(); },
            [done, forged, alive](ProbeResult result) {
              if (forged && IsAnswer(result)) result = ProbeResult::kUnanswered;
              done(alive ? ProbeResult::kAccepted : result);
            });
    }
    for (auto& array : world.arrays)
      if (array->id().value() == address)
        Connect(
            array->portal(), [&at = *array] { return at.serves(); }, done);
  }

 private:
  void Connect(Endpoint to, std::function<bool()> answers, std::function<void(ProbeResult)> done) {
    process_.world().Call<bool>(
        process_.endpoint(), to, kProbe,
        [answers = std::move(answers)](auto reply) {
          if (answers()) reply(true);
        },
        [&process = process_, waits = waits_, to, done = std::move(done)](const bool* answered) {
          ProbeResult result = answered ? ProbeResult::kAccepted : ProbeResult::kUnanswered;
          const bool cut = !process.world().Open(process.endpoint(), to);
          if (!answered && cut) result = ProbeResult::kNoRoute;
          process.Deliver([waits, done, result] {
            if (*waits) done(result);
          });
        });
  }

  Process& process_;
  const std::shared_ptr<bool> waits_ = std::make_shared<bool>(true);
};

}  // namespace

struct Replica::Life {
  Life(Replica& replica, ClockError clock)
      : process(replica.world_, replica.endpoint_, clock),
        client(MakeApiClient(replica, process)),
        arrays(MakeArrayClients(replica, process)),
        all_grants(MakeGrantRouter(*arrays)),
        uses([this](const std::string& machine,
                    const VolumeId& volume) { return failover->FindUse(machine, volume); },
             *arrays, *client, process),
        requests(*all_grants, *arrays, &uses, 0),
        asker(process.MakeWorkers(kMostQuestions)),
        server(process.MakeWorkers(kServing)) {}

  KnownReplicas::Time Now() const {
    return KnownReplicas::Time(absl::ToChronoNanoseconds(process.SteadyNow()));
  }

  // Whether the votes have to wait for that one's.
  bool Awaits(const Replica& other) {
    const WorldTime now = process.world().now();
    return now - answered_at.try_emplace(&other, now).first->second < kAwaited;
  }

  // Every thread of it ends, while it can still reach everybody. What they use is freed with the world.
  void End(const std::function<void()>& ended) {
    requests.Leave();
    reaper = process.StartThread([this, ended] {
      server->Stop();
      failover.reset();
      poll.reset();
      asker->Stop();
      reaped = true;
      ended();
    });
  }
  void Kill() {
    process.Kill();
    End([] {});
  }

  static constexpr size_t kMostQuestions = 256;
  Process process;
  const std::unique_ptr<kube::KubeClient> client;
  const std::unique_ptr<lunkeeper::Arrays> arrays;
  const std::unique_ptr<GrantStore> all_grants;
  PodUseCheck uses;
  NodeRequests requests;
  KnownReplicas others;
  const std::unique_ptr<Workers> asker, server;
  std::unique_ptr<ReplicaPoll> poll;
  std::unique_ptr<Failover> failover;
  // For the checker: when each replica last answered this one, or was first asked; and of each node the votes
  // that are not counted yet.
  std::map<const Replica*, WorldTime> answered_at;
  std::map<NodeId, int> uncounted;
  std::set<NodeId> heard;  // ever
  bool reaped = false;
  std::unique_ptr<Thread> reaper;
};

Replica::Replica(World& world, size_t number, ClockError clock, Machine& machine)
    : world_(world),
      number_(number),
      clock_(clock),
      machine_(machine),
      endpoint_(world.AddEndpointOn(machine.endpoint())) {
  Start();
}

Replica::~Replica() = default;

Settings Replica::OwnSettings() const {
  Settings settings = world_.settings;
  if (world_.Has(Mutant::kBudgetIgnored)) settings.budget_percent = 100;
  if (world_.Has(Mutant::kPauseIgnored)) settings.paused = false;
  return settings;
}

void Replica::ApplySettings() {
  if (running_) life().failover->ChangeSettings(OwnSettings());
}

void Replica::Start() {
  if (over_) return;
  running_ = true;
  lives_.push_back(std::make_unique<Life>(*this, clock_));
  yes_at_.clear();
  began_at_ = world_.now();
  hears_from_ = world_.now() + world_.random().Between(Span(), kMostDeaf);
  long_stall_until_ = renewed_at_ = {};
  held_since_.reset();
  Life& now = life();
  FailoverOptions options{.settings = OwnSettings(),
                          .self = name(),
                          .lease = {"kube-system", "lunkeeper-failover"},
                          .executor = now.process};
  now.poll = std::make_unique<ReplicaPoll>([this, &now] { return ListAsked(now); }, name(), now.process);
  options.ask_replicas = [&now](const NodeId& node, auto answered) {
    ++now.uncounted[node];
    now.poll->AskAll(node, [&now, node, answered = std::move(answered)](const ReplicaVotes& votes) {
      --now.uncounted[node];
      answered(votes);
    });
  };
  options.make_prober = [&now] { return std::make_unique<SimulatedProber>(now.process); };
  now.failover = StartFailover(options, *now.arrays, *now.client);
}

// By the kubelet of its machine.
void Replica::StartIn(Span delay) {
  world_.After(delay, [this, start = ++starts_] {
    if (start != starts_ || over_ || deleted_) return;
    machine_.StartsContainers() ? Start() : StartIn(kKubeletLooks);
  });
}

bool Replica::HasKernel() const { return machine_.powered(); }

std::string Replica::address() const { return HostAt(endpoint_) + ":" + std::to_string(kPort); }

bool Replica::Leads() const {
  return running_ && world_.api->LeaseHolder() == name() && world_.now() - renewed_at_ < kLeadsFor;
}

bool Replica::Watches() const { return running_ && life().failover->Sight().has_value(); }

bool Replica::HasHeard(const NodeId& node) const { return life().heard.contains(node); }

bool Replica::stalled() const { return life().process.stalled(); }

void Replica::Crash(Span down) {
  if (!running_) return;
  world_.Trace(name() + " crashes");
  running_ = false;
  life().Kill();
  StartIn(down);
}

void Replica::LosePower() {
  if (!std::exchange(running_, false)) {
    if (!life().process.dead()) life().process.Kill();  // it was ending in order
    return;
  }
  world_.Trace(name() + " loses its power");
  life().Kill();
  StartIn(kKubeletLooks);
}

// The same as a stall whose length nobody knows.
void Replica::Hold(bool on) {
  if (on == held_since_.has_value() || life().process.dead()) return;
  if (!on && world_.now() - *held_since_ > kNoticedStall) long_stall_until_ = world_.now();
  held_since_ = on ? std::make_optional(world_.now()) : std::nullopt;
  life().process.Hold(on);
}

void Replica::Stall(Span length) {
  if (!running_ || stalled()) return;
  world_.Trace(name() + " stalls for " + std::to_string(length.milliseconds()) + " ms");
  life().process.Stall(length);
  if (length > kNoticedStall) long_stall_until_ = world_.now() + length;
}

void Replica::Replace(Span down) {
  if (!running_ || stalled()) return;
  world_.Trace(name() + " ends");
  running_ = false;
  life().End([this, down] { StartIn(down); });
}

void Replica::EndInOrder() {
  if (running_) Replace(kKubeletLooks);
}

void Replica::StepClock(Span by) {
  world_.Trace(name() + " has its clock set by " + std::to_string(by.milliseconds()) + " ms");
  clock_.wall = clock_.wall + by;
  life().process.StepWallClock(by);
}

bool Replica::BeginsToAct() {
  if (!running_) return !life().process.dead();
  if (fail_at_ == 0 || --fail_at_ > 0) return true;
  if (fail_by_stall_) {
    // Between the decision to act and the act: the worst moment.
    Stall(world_.random().Between(2_s, 15_s));
    life().process.Sleep(1_ms);
    return !life().process.dead();
  }
  const Span down = world_.random().Between(500_ms, 8_s);
  if (world_.random().Percent(50)) {
    Crash(down);
    return false;
  }
  world_.After(0_ms, [this, down] { Crash(down); });  // when it has left
  return true;
}

void Replica::End() {
  over_ = true;
  if (std::exchange(running_, false)) return life().Kill();
  if (!life().process.dead()) life().process.Kill();  // it is ending in order
}

bool Replica::ended() const {
  for (const auto& each : lives_)
    if (!each->reaped || each->process.threads() > 0) return false;
  return true;
}

void Replica::Serve(std::function<absl::Status(NodeRequests&)> work,
                    std::function<void(const absl::Status&, bool)> reply) {
  if (!HasKernel()) return;
  if (!running_) return reply(absl::UnavailableError("connection refused"), false);
  Life& now = life();
  now.process.Deliver([&now, work = std::move(work), reply = std::move(reply)] {
    now.server->Post([&now, work, reply] {
      const absl::Status status = work(now.requests);
      if (!now.process.dead()) reply(status, true);
    });
  });
}

void Replica::OnHeartbeat(Heartbeat heartbeat, HeartbeatReply reply) {
  if (world_.Has(Mutant::kCleanForged)) heartbeat.present.clear();
  if (world_.now() < hears_from_) return;
  Life& now = life();
  now.process.Deliver([this, &now, heartbeat = std::move(heartbeat), reply = std::move(reply)] {
    if (!now.failover) return;
    now.heard.insert(heartbeat.node);
    world_.checker->Hears(*this, heartbeat.node);
    reply(now.failover->OnHeartbeat(heartbeat), now.others.ListReplicas(now.Now()));
  });
}

void Replica::OnClosed(const NodeId& node) {
  Life& now = life();
  now.process.Deliver([&now, node] {
    if (now.failover) now.failover->OnClosed(node);
  });
}

void Replica::Answer(Endpoint asker, const NodeId& node, std::function<void(ReplicaAnswer)> reply) {
  Life& now = life();
  now.process.Deliver([this, &now, asker, node, reply = std::move(reply)] {
    if (!now.failover) return;
    now.others.NoteReplica("ipv4:" + HostAt(asker) + ":50000", kPort, now.Now());
    const bool hears = !node.empty() && (always_yes_ || now.failover->Hears(node).value_or(false));
    const bool answers = !node.empty() && now.failover->KernelAnswers(node);
    reply({now.failover->ReplicaName(), hears, now.failover->Sight(), answers});
  });
}

// All of them, as their Service has: its own address is among them.
std::vector<AskedReplica> Replica::ListAsked(Life& life) {
  std::vector<AskedReplica> asked;
  for (auto& other : world_.replicas)
    asked.push_back({"replica" + std::to_string(other->number_),
                     [this, &life, &at = *other](const NodeId& node, absl::Duration timeout, auto answered) {
                       life.asker->Post([this, &life, &at, node, timeout, awaited = life.Awaits(at),
                                         answered = std::move(answered)] {
                         const auto answer = Ask(life, at, node, life.process.InWorld(timeout), awaited);
                         answered(answer ? &*answer : nullptr);
                       });
                     }});
  return asked;
}

// A yes that came when the votes were counted could change nothing, unless it had to be waited for.
std::optional<ReplicaAnswer> Replica::Ask(Life& life, Replica& other, const NodeId& node, Span timeout,
                                          bool awaited) {
  auto answer = life.process.Call<ReplicaAnswer>(
      other.endpoint(), timeout,
      [&other, from = endpoint_, node](auto reply) { other.Answer(from, node, reply); });
  if (answer) life.answered_at[&other] = world_.now();
  const bool in_time = awaited || life.uncounted[node] > 0;
  if (answer && answer->hears && in_time && &other != this) yes_at_[node] = world_.now();
  if (answer && world_.Has(Mutant::kVotesIgnored)) answer->hears = false;
  if (answer && world_.Has(Mutant::kSightsIgnored)) answer->sight.reset();
  if (answer && answer->sight) answer->sight->nodes += world_.Has(Mutant::kSightsForged) ? 1 : 0;
  return answer;
}

// Of a node that it hears itself nobody has to be asked.
std::optional<WorldTime> Replica::YesAt(const NodeId& node) const {
  if (running_ && life().failover->Hears(node).value_or(false)) return std::nullopt;
  const auto yes = yes_at_.find(node);
  return yes == yes_at_.end() ? std::nullopt : std::make_optional(yes->second);
}

}  // namespace lunkeeper::fencing::sim
