#include "devices/array/tgt/machine_shares.h"

#include <algorithm>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/steady_deadline.h"
#include "devices/node_id.h"

namespace lunkeeper {
namespace {

constexpr size_t kMostIdle = 1024;

std::pair<std::string, std::string> KeyOf(const ClusterId& cluster, const NodeId& node) {
  return {cluster.value(), MachineOf(node)};
}

}  // namespace

MachineShares::Turn MachineShares::TakeTurn(const ClusterId& cluster, const NodeId& node) {
  const Key key = KeyOf(cluster, node);
  const SteadyLock lock(&mutex_);
  const Clock::time_point now = Clock::now();
  Machine& machine = Find(key, now);
  if (NextTurn(machine) > now) return nullptr;
  machine.turns.push_back(now);
  // Any pointer that is not null: the deleter is what counts.
  return Turn(this, [this, key, now](void*) { EndTurn(key, now); });
}

void MachineShares::AwaitTurn(const ClusterId& cluster, const NodeId& node, Clock::time_point until) {
  const Key key = KeyOf(cluster, node);
  const SteadyLock lock(&mutex_);
  ++Find(key, Clock::now()).waiting;
  while (true) {
    const Clock::time_point now = Clock::now();
    const Clock::time_point next = NextTurn(Find(key, now));
    if (next <= now || until <= now) break;
    const auto another_ended = [this, before = ended_]()
                                   ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_ != before; };
    mutex_.AwaitUntil(absl::Condition(&another_ended),
                      SteadyDeadline(absl::FromChrono(std::min(next, until) - now)));
  }
  --machines_.at(key).waiting;
}

MachineShares::Machine& MachineShares::Find(const Key& key, Clock::time_point now) {
  if (machines_.size() > kMostIdle && !machines_.contains(key)) ForgetIdle();
  Machine& machine = machines_.try_emplace(key, Machine{limits_.at_once, now}).first->second;
  const auto grown = std::chrono::duration_cast<Clock::duration>((now - machine.filled) * limits_.share);
  machine.credit = std::min(machine.credit + grown, limits_.at_once);
  machine.filled = now;
  return machine;
}

MachineShares::Clock::time_point MachineShares::NextTurn(const Machine& machine) const {
  Clock::time_point next = Clock::time_point::min();
  if (machine.credit <= Clock::duration::zero()) {
    const auto wait = std::chrono::duration_cast<Clock::duration>(-machine.credit / limits_.share);
    next = machine.filled + wait + std::chrono::milliseconds(1);
  }
  if (machine.turns.size() >= limits_.at_a_time)
    next = std::max(next, machine.turns[machine.turns.size() - limits_.at_a_time] + limits_.held);
  return next;
}

void MachineShares::EndTurn(const Key& key, Clock::time_point began) {
  const SteadyLock lock(&mutex_);
  const Clock::time_point now = Clock::now();
  Machine& machine = Find(key, now);
  machine.credit -= std::min(now - began, limits_.paid);
  machine.turns.erase(std::find(machine.turns.begin(), machine.turns.end(), began));
  ++ended_;
}

void MachineShares::ForgetIdle() {
  std::erase_if(machines_, [&](const auto& entry) {
    const Machine& machine = entry.second;
    return machine.turns.empty() && machine.waiting == 0 && machine.credit > limits_.at_once / 2;
  });
}

}  // namespace lunkeeper
