// A replica is driven by four timers, as the product is: ticks, polls of the arrays, the watch on the API
// server, and looks at the lease. While it is stalled nothing of that runs, and what comes in waits in the
// backlog; afterwards it is all seen at once, and late. A crash ends the core with all it knew: the next life
// of the process begins with an empty one, and answers to the former are dropped.

#include "fencing/sim/replica.h"

#include "fencing/core/trace.h"
#include "fencing/sim/api.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/machine.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kTick = 250_ms, kPoll = 500_ms, kPollTimeout = 9_s, kApi = 1_s, kLeaseLook = 250_ms;
constexpr Span kWatchDeadline = 3_s, kAcquireCall = 30_s, kHears = 1_s, kChannelDies = 3_s,
               kNoticedStall = 1200_ms;

}  // namespace

Replica::Replica(World& world, size_t number, Settings settings)
    : world_(world),
      number_(number),
      settings_(FaultInjection::Change(world, std::move(settings))),
      endpoint_(world.AddEndpoint()),
      runner_(world, *this),
      fault_injection_(std::make_unique<FaultInjection>(world)) {
  Every(kTick, &Replica::Tick);
  Every(kPoll, &Replica::PollArrays);
  Every(kApi, &Replica::PollApi);
  Every(kLeaseLook, &Replica::PollLease);
  Start();
}

void Replica::Start() {
  ++life_;
  running_ = true;
  core_ = std::make_unique<Core>(settings_, name());
  fault_injection_ = std::make_unique<FaultInjection>(world_);
  backlog_.clear();
  heard_at_.clear();
  yes_at_.clear();
  looks_.clear();
  nodes_.clear();
  pods_.clear();
  fences_.clear();
  began_at_ = world_.now();
  stalled_until_ = long_stall_until_ = alive_at_ = listed_at_ = renewed_at_ = {};
  for (const auto& array : world_.arrays) Receive(ArrayConfigured{array->id()});
  List();
}

void Replica::Every(Span period, void (Replica::*what)()) {
  world_.After(world_.random().Between(0_ms, period), [=, this] { Again(period, what); });
}

void Replica::Again(Span period, void (Replica::*what)()) {
  if (running_ && !stalled()) (this->*what)();
  world_.After(period, [=, this] { Again(period, what); });
}

void Replica::Crash(Span down) {
  if (!running_) return;
  world_.Trace(name() + " crashes");
  running_ = false;
  world_.After(down, [this] { Start(); });
}

// What comes in meanwhile waits, and is seen afterwards, late.
void Replica::Stall(Span length) {
  if (!running_ || stalled()) return;
  world_.Trace(name() + " stalls for " + FormatSeconds(length));
  stalled_until_ = world_.now() + length;
  if (length > kNoticedStall) long_stall_until_ = stalled_until_;
  world_.After(length, [this, life = life_] {
    if (!running_ || life != life_) return;
    for (auto& what : std::exchange(backlog_, {})) Receive(std::move(what));
  });
}

void Replica::Answer(const NodeId& node, const std::function<void(Vote)>& reply) const {
  if (!running_ || stalled()) return;
  const auto heard = heard_at_.find(node);
  const bool hears = always_yes_ || (heard != heard_at_.end() && world_.now() - heard->second < kHears);
  reply({hears, core_->Sight()});
}

bool Replica::Watches() const { return !listing_ && world_.now() - alive_at_ <= kWatchDeadline; }

// Of a node that it hears itself nobody has to be asked.
std::optional<WorldTime> Replica::YesAt(const NodeId& node) const {
  const auto heard = heard_at_.find(node);
  if (heard != heard_at_.end() && world_.now() - heard->second < kHears) return std::nullopt;
  const auto yes = yes_at_.find(node);
  return yes == yes_at_.end() ? std::nullopt : std::make_optional(yes->second);
}

void Replica::Receive(decltype(Event::what) what) {
  if (!running_) return;
  if (const auto* heartbeat = std::get_if<Heartbeat>(&what)) heard_at_[heartbeat->node] = world_.now();
  if (stalled()) return backlog_.push_back(std::move(what));
  Event event{Clock(), std::move(what)};
  if (!fault_injection_->Hear(event)) return;
  const auto life = life_;
  for (const auto& action : core_->Step(event)) {
    if (life != life_ || !running_) return;
    Do(action);
  }
}

void Replica::Do(const Action& action) {
  const bool routine =
      std::holds_alternative<Probe>(action.what) || std::holds_alternative<Report>(action.what) ||
      std::holds_alternative<WriteLease>(action.what) || std::holds_alternative<Notify>(action.what) ||
      std::holds_alternative<AskReplicas>(action.what);
  if (world_.tracing() && (!routine || std::holds_alternative<Report>(action.what)))
    world_.Trace(name() + ": " + DescribeAction(action));
  if (!routine) world_.checker->Acts(*this, action);  // decided now, whenever it is done
  const auto* lease = std::get_if<WriteLease>(&action.what);
  if (lease && lease->release) world_.checker->Yields(*this);
  const bool fails = !routine && fail_at_ > 0 && --fail_at_ == 0;
  if (fails && fail_by_stall_) {
    // Between the decision to act and the act: the worst entry.
    Stall(world_.random().Between(2_s, 15_s));
    world_.After(stalled_until_ - world_.now(), [this, action, life = life_] {
      if (life == life_ && running_) Perform(action);
    });
    return;
  }
  if (!fails || world_.random().Percent(50)) Perform(action);
  if (fails) Crash(world_.random().Between(500_ms, 8_s));
}

void Replica::Perform(const Action& action) {
  std::vector<Done> answers;
  for (const auto& each : fault_injection_->Act(action, answers)) runner_.Run(each);
  for (auto& answer : answers)
    world_.After(5_ms, [this, answer, life = life_] {
      if (life == life_) Receive(answer);
    });
}

void Replica::Tick() {
  for (const auto& [array, looks] : looks_)
    if (looks.failed) Receive(ArrayLost{array});
  Receive(fencing::Tick{});
}

// One look at a time, half a second after the one before has ended.
void Replica::PollArrays() {
  for (auto& array : world_.arrays) {
    auto& looks = looks_[array->id()];
    if (looks.under_way) continue;
    looks.under_way = true;
    const auto number = ++looks.number;
    world_.Call<std::optional<ArrayView>>(
        endpoint_, array->endpoint(), kPollTimeout, [&at = *array](auto reply) { at.LookAt(reply); },
        [this, &at = *array, number, asked = Clock(), life = life_](const auto* view) {
          if (life == life_) OnLook(at, number, asked, view ? *view : std::nullopt);
        });
  }
}

void Replica::OnLook(ArrayModel& array, uint64_t number, Instant asked,
                     const std::optional<ArrayView>& view) {
  auto& looks = looks_[array.id()];
  if (!looks.under_way || looks.number != number) return;  // it was given up
  looks.under_way = false;
  looks.failed = !view;
  if (!view) return;
  auto stamped = *view;
  stamped.asked = asked;
  Receive(std::move(stamped));
}

void Replica::PollApi() {
  if (world_.now() - alive_at_ > kWatchDeadline) {
    Receive(ApiLost{});
    if (world_.now() - listed_at_ > kWatchDeadline) List();
  }
  world_.Send(world_.api->endpoint(), endpoint_, [this, life = life_] {
    if (life == life_ && world_.api->up && !listing_ && world_.api->IsWatching(number_)) {
      alive_at_ = world_.now();
      Receive(ApiAlive{});
    }
  });
}

void Replica::PollLease() {
  world_.Call<LeaseSeen>(
      endpoint_, world_.api->endpoint(), kCall,
      [this](auto reply) {
        if (world_.api->up) reply(world_.api->lease());
      },
      [this, asked = Clock(), life = life_](const LeaseSeen* seen) {
        if (!seen || life != life_) return;
        auto stamped = *seen;
        stamped.asked = asked;
        Receive(stamped);
      });
}

void Replica::List() {
  listed_at_ = world_.now();
  listing_ = true;
  world_.Send(endpoint_, world_.api->endpoint(), [this, life = life_] {
    if (!world_.api->up || life != life_) return;
    listed_nodes_.clear();
    listed_pods_.clear();
    listed_fences_.clear();
    world_.api->List(number_, endpoint_, [this, life](const auto& what) { Watched(life, what); });
  });
}

void Replica::Watched(uint64_t life, const decltype(Event::what)& what) {
  if (life != life_) return;
  if (!listing_) alive_at_ = world_.now();  // a list that was lost is asked for again
  NoteSeen(what);
  if (std::holds_alternative<ApiLost>(what)) {
    listing_ = true;
    alive_at_ = listed_at_ = {};
  }
  if (std::holds_alternative<ApiSynced>(what) && listing_) {
    for (const auto& name : nodes_)
      if (!listed_nodes_.contains(name)) Receive(NodeGone{name});
    for (const auto& id : pods_)
      if (!listed_pods_.contains(id)) Receive(PodGone{id});
    for (const auto& id : fences_)
      if (!listed_fences_.contains(id)) Receive(FenceGone{id});
    nodes_ = listed_nodes_;
    pods_ = listed_pods_;
    fences_ = listed_fences_;
    listing_ = false;
  }
  Receive(what);
}

void Replica::NoteSeen(const decltype(Event::what)& what) {
  auto& nodes = listing_ ? listed_nodes_ : nodes_;
  auto& pods = listing_ ? listed_pods_ : pods_;
  auto& fences = listing_ ? listed_fences_ : fences_;
  if (const auto* node = std::get_if<NodeSeen>(&what)) nodes.insert(node->node.name);
  if (const auto* pod = std::get_if<PodSeen>(&what)) pods.insert(pod->pod.id);
  if (const auto* fence = std::get_if<FenceSeen>(&what)) fences.insert(fence->fence.node);
}

// Forwards, and tells every replica what is waited for as long as it is.
void Replica::Acquire(const ArrayId& array, const VolumeId& volume, const NodeId& node,
                      std::function<void(Generation)> reply) {
  if (!running_ || stalled()) return;
  auto& at = world_.FindArray(array);
  // Its channel there is dead, which it says; the node asks another replica.
  if (!world_.Open(endpoint_, at.endpoint())) return world_.After(kChannelDies, [reply] { reply(0); });
  world_.Call<Generation>(
      endpoint_, at.endpoint(), kAcquireCall,
      [&at, volume, node](auto answer) { at.Acquire(volume, node, answer); },
      [reply](const Generation* generation) {
        if (generation) reply(*generation);
      });
  Wanted(array, volume, node, world_.now() + kAcquireCall);
}

void Replica::Wanted(const ArrayId& array, const VolumeId& volume, const NodeId& node, WorldTime until) {
  world_.After(kPoll, [this, array, volume, node, until, life = life_] {
    if (life != life_ || !running_ || world_.now() > until) return;
    auto& at = world_.FindArray(array);
    const auto* holder = at.serves() && world_.Open(endpoint_, at.endpoint()) ? at.HolderOf(volume) : nullptr;
    if (holder && *holder == node) return;
    if (holder)
      for (auto& replica : world_.replicas)
        world_.Send(endpoint_, replica->endpoint(), [&to = *replica, array, volume, held_by = *holder] {
          to.Receive(VolumeWanted{array, volume, held_by});
        });
    Wanted(array, volume, node, until);
  });
}

void Replica::Release(const ArrayId& array, const VolumeId& volume, const NodeId& node, Generation generation,
                      std::function<void(bool)> reply) {
  if (!running_ || stalled()) return;
  auto& at = world_.FindArray(array);
  world_.Call<bool>(
      endpoint_, at.endpoint(), kFenceCall,
      [&at, volume, node, generation](auto answer) { at.Release(volume, node, generation, answer); },
      [reply](const bool* released) {
        if (released) reply(*released);
      });
}

}  // namespace lunkeeper::fencing::sim
