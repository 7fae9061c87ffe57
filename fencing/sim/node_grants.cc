// As the product has it (fencing/agent/replicas.cc): a call goes to any replica whose connection works, and
// to the next one when that connection turns out to be dead.

#include "fencing/sim/node_grants.h"

#include <algorithm>

#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kWait = 30_s, kArrayCall = 2_s, kRelease = 8_s, kAskedLast = 10_s;
// A connection on which nothing is acknowledged for 2 s ends (gRPC sets TCP_USER_TIMEOUT), and heartbeats go
// over it all the time.
constexpr Span kDeadConnection = 2500_ms, kNotices = 500_ms;

}  // namespace

void NodeGrants::NoteOpenWays() {
  const Endpoint from = machine_.endpoint();
  for (const auto& replica : world_.replicas) {
    const Endpoint to = replica->endpoint();
    if (replica->HasKernel() && world_.Open(from, to) && world_.Open(to, from)) open_at_[to] = world_.now();
  }
}

bool NodeGrants::IsReady(const Replica& replica) const {
  const auto open = open_at_.find(replica.endpoint());
  const bool refuses = replica.HasKernel() && !replica.running();
  return !refuses && open != open_at_.end() && world_.now() - open->second < kDeadConnection;
}

std::vector<Replica*> NodeGrants::ListReplicas() const {
  std::vector<Replica*> replicas;
  for (const auto& replica : world_.replicas) replicas.push_back(replica.get());
  std::ranges::stable_partition(replicas, [&](const auto* replica) {
    const auto failed = failed_at_.find(replica->endpoint());
    return failed == failed_at_.end() || world_.now() - failed->second >= kAskedLast;
  });
  std::ranges::stable_partition(replicas, [&](const auto* replica) { return IsReady(*replica); });
  return replicas;
}

void NodeGrants::NoteOutcome(const Replica& replica, bool answered) {
  answered ? (void)failed_at_.erase(replica.endpoint())
           : (void)(failed_at_[replica.endpoint()] = world_.now());
}

void NodeGrants::NoticeIfDead(const Replica& replica, const VolumeId& volume,
                              std::optional<WorldTime> asked) {
  world_.After(kNotices, [this, &replica, volume, asked, life = machine_.life()] {
    if (!machine_.IsAlive(life) || asked_[volume] != asked) return;
    IsReady(replica) ? NoticeIfDead(replica, volume, asked) : asked_[volume].reset();
  });
}

// Each time the next one.
Replica& NodeGrants::PickReplica(const VolumeId& volume) {
  const auto first = static_cast<size_t>(world_.random().Between(0, 1));
  auto& attempt = attempts_.try_emplace(volume, first).first->second;
  const auto count = world_.replicas.size();
  for (size_t i = 0; i < count && !IsReady(*world_.replicas[attempt % count]); ++i) ++attempt;
  return *world_.replicas[attempt++ % count];
}

// NodeStage: a controller replica asks the array, and blocks.
void NodeGrants::Ask(const ArrayId& array, const VolumeId& volume) {
  auto& asked = asked_[volume];
  if (asked && world_.now() - *asked < kWait) return;
  asked = world_.now();
  auto& replica = PickReplica(volume);
  NoticeIfDead(replica, volume, asked);
  world_.Call<Generation>(
      machine_.endpoint(), replica.endpoint(), kWait,
      [&replica, array, volume, id = machine_.id()](auto reply) {
        replica.Acquire(array, volume, id, reply);
      },
      [this, array, volume, life = machine_.life(), at = asked](const Generation* generation) {
        if (!machine_.IsAlive(life) || asked_[volume] != at) return;
        asked_[volume].reset();
        if (generation && *generation != 0) data_path_.Attach(array, volume, *generation);
      });
}

void NodeGrants::LookForLost() {
  for (auto& array : world_.arrays)
    world_.Call<std::vector<lunkeeper::Grant>>(
        machine_.endpoint(), array->endpoint(), kArrayCall,
        [&at = *array](auto reply) {
          if (at.serves()) reply(at.Grants());
        },
        [this, &at = *array, life = machine_.life()](const auto* grants) {
          if (!grants || !machine_.IsRunning(life)) return;
          for (const auto& held : *grants)
            if (held.node == machine_.id() && !data_path_.FindDevice(held.volume) && !asked_[held.volume] &&
                !Releases(held.volume))
              releases_[held.volume] = {at.id(), held.generation};
        });
}

void NodeGrants::SendReleases() {
  for (const auto& [volume, release] : releases_) {
    auto& replica = *world_.random().Pick(world_.replicas);
    world_.Call<bool>(
        machine_.endpoint(), replica.endpoint(), kRelease,
        [&replica, volume = volume, release = release, id = machine_.id()](auto reply) {
          replica.Release(release.array, volume, id, release.generation, reply);
        },
        [this, volume = volume, generation = release.generation,
         life = machine_.life()](const bool* released) {
          if (!machine_.IsAlive(life) || !released || !*released) return;
          const auto found = releases_.find(volume);
          if (found != releases_.end() && found->second.generation == generation) releases_.erase(found);
        });
  }
}

}  // namespace lunkeeper::fencing::sim
