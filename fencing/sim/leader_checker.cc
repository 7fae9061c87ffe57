// What the replicas could see is noted twice a second, by what is really cut, down or deaf, and with each
// heartbeat that arrives. A leader is held to that only after the time in which it may not have noticed yet.

#include "fencing/sim/leader_checker.h"

#include <algorithm>

#include "fencing/core/trace.h"
#include "fencing/sim/api.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kOld = 15_s, kOutseen = 25_s, kYieldPause = 59_s;
// How long a replica may take for there what is gone, or the other way round: a look that was lost is waited
// for, and a late heartbeat says that its node lives. And then how long until it yields.
constexpr Span kSightSettles = 12_s, kYieldsWithin = 5_s, kYoung = 9_s;

[[noreturn]] void Violate(const World& world, const std::string& what) {
  throw Violation(FormatSeconds(world.now().since_start()) + "  " + what);
}

bool AreConnected(const World& world, Endpoint a, Endpoint b) { return world.Open(a, b) && world.Open(b, a); }

}  // namespace

bool Sees(const World& world, const Replica& replica, const ArrayModel& array) {
  return array.serves() && AreConnected(world, replica.endpoint(), array.endpoint());
}

namespace {

struct Sight {
  size_t arrays = 0, nodes = 0;
  bool IsMoreThan(const Sight& other) const {
    return arrays >= other.arrays && nodes >= other.nodes && (arrays > other.arrays || nodes > other.nodes);
  }
};

bool Exists(const World& world, const NodeId& id) {
  const auto node = world.api->nodes().find(NameOf(id));
  return node != world.api->nodes().end() && node->second.node_id == id;
}

// A stream that stands brings heartbeats while nothing comes back. But a node keeps sending on the stream to
// a process that is gone until its reset comes back, so that a new process may never hear it.
bool Sees(const World& world, const Replica& replica, const Machine& machine) {
  return Exists(world, machine.id()) && machine.Heartbeats() && world.now() >= replica.hears_from() &&
         world.Open(machine.endpoint(), replica.endpoint()) &&
         (replica.HasHeard(machine.id()) || world.Open(replica.endpoint(), machine.endpoint()));
}

Sight SightOf(const World& world, const Replica& replica) {
  Sight sight;
  for (const auto& array : world.arrays) sight.arrays += Sees(world, replica, *array);
  for (const auto& machine : world.machines) sight.nodes += Sees(world, replica, *machine);
  return sight;
}

bool CouldLead(const World& world, const Replica& replica) {
  return replica.running() && !replica.stalled() && world.now() - replica.began_at() >= kOld &&
         world.api->up && AreConnected(world, replica.endpoint(), world.api->endpoint());
}

}  // namespace

LeaderChecker::LeaderChecker(World& world) : world_(world) { LookAtLeader(); }

// A look each half second. How soon it has to yield does not matter to a failover that is under way.
void LeaderChecker::LookAtLeader() {
  world_.After(500_ms, [this] { LookAtLeader(); });
  NoteSights();
  for (const auto& leader : world_.replicas) {
    if (!leader->Leads()) continue;
    // One that is not told what changes can do nothing with what it sees.
    const Sight own = leader->Watches() ? SightOf(world_, *leader) : Sight();
    bool outseen = false, may_stay = !world_.api->fences().empty() || world_.api->error_percent > 0;
    for (const auto& other : world_.replicas) {
      if (other == leader || !other->running()) continue;
      if (world_.now() - other->stalled_until() >= kYoung && MaySeeMore(*other, *leader))
        outseen_at_[leader->name()] = world_.now();
      if (!SightOf(world_, *other).IsMoreThan(own)) continue;
      outseen |= CouldLead(world_, *leader) && CouldLead(world_, *other) && other->Watches() &&
                 AreConnected(world_, leader->endpoint(), other->endpoint());
    }
    const auto yielded = yielded_at_.find(leader->name());
    may_stay |= yielded != yielded_at_.end() && world_.now() - yielded->second < kYieldPause;
    if (!outseen || may_stay) {
      outseen_since_.erase(leader->name());
    } else if (world_.now() - outseen_since_.emplace(leader->name(), world_.now()).first->second > kOutseen) {
      Violate(world_, leader->name() + " leads on, although another one sees more");
    }
  }
}

void LeaderChecker::NoteSights() {
  for (const auto& replica : world_.replicas) {
    const auto note = [&](const std::string& what, bool sees) {
      auto& seen = seen_[{replica->name(), what}];
      (sees ? seen.at : seen.missed_at) = world_.now();
    };
    for (const auto& array : world_.arrays) note(array->id().value(), Sees(world_, *replica, *array));
    for (const auto& machine : world_.machines) note(machine->id().value(), Sees(world_, *replica, *machine));
  }
}

// A cut that is mended may still bring one replica what it kept back, of a node that has died since; and a
// replica counts each node that it has heard lately.
void LeaderChecker::Hears(const Replica& replica, const NodeId& node) {
  if (Exists(world_, node)) seen_[{replica.name(), node.value()}].at = world_.now();
}

// One that has not noticed yet what the other one has, or the other way round.
bool LeaderChecker::MaySeeMore(const Replica& replica, const Replica& leader) const {
  const auto lately = [&](const std::optional<WorldTime>& at) {
    return at && world_.now() - *at < kSightSettles;
  };
  Sight most, least;
  const auto count = [&](const std::string& what, size_t& in_most, size_t& in_least) {
    in_most += lately(seen_.at({replica.name(), what}).at);
    const Seen& own = seen_.at({leader.name(), what});
    in_least += leader.Watches() && lately(own.at) && !lately(own.missed_at);
  };
  for (const auto& array : world_.arrays) count(array->id().value(), most.arrays, least.arrays);
  for (const auto& machine : world_.machines) count(machine->id().value(), most.nodes, least.nodes);
  return most.IsMoreThan(least);
}

void LeaderChecker::Yields(const Replica& replica) {
  const auto last = yielded_at_.find(replica.name());
  if (last != yielded_at_.end() && world_.now() - last->second < kYieldPause)
    Violate(world_, replica.name() + " yields twice within a minute");
  const auto outseen = outseen_at_.find(replica.name());
  if (outseen == outseen_at_.end() || world_.now() - outseen->second > kYieldsWithin)
    Violate(world_, replica.name() + " yields although no other one sees more");
  yielded_at_[replica.name()] = world_.now();
}

}  // namespace lunkeeper::fencing::sim
