// A gate exists while somebody uses it: the one inside, each place in the line, each call that waits to
// enter. `users` counts them, and the last one to leave deletes it, so that a million volumes cost nothing.
//
// `changes` keeps those in line from trying in vain: a place that was inside and did not get its grant enters
// again only after WakeWaiters has counted up. Without it the first in line would take the gate over and
// over.
#include "devices/array/tgt/volume_gates.h"

#include <algorithm>
#include <utility>

namespace lunkeeper {

VolumeGates::Pass::Pass(Pass&& other) noexcept
    : gates_(std::exchange(other.gates_, nullptr)), volume_(std::move(other.volume_)) {}

VolumeGates::Pass::~Pass() {
  if (gates_ != nullptr) gates_->LeaveGate(volume_);
}

VolumeGates::Place::Place(VolumeGates* gates, VolumeId volume) : gates_(gates), volume_(std::move(volume)) {
  const SteadyLock lock(&gates_->mu_);
  gates_->AddUser(volume_).line.push_back(this);
}

VolumeGates::Place::~Place() {
  const SteadyLock lock(&gates_->mu_);
  Gate& gate = *gates_->gates_.at(volume_);
  gate.line.erase(std::find(gate.line.begin(), gate.line.end(), this));
  gates_->RemoveUser(volume_);
}

std::optional<VolumeGates::Pass> VolumeGates::Place::Enter(absl::Time deadline) {
  const SteadyLock lock(&gates_->mu_);
  Gate& gate = *gates_->gates_.at(volume_);
  const auto may_go = [this, &gate] {
    return !gate.busy && gate.line.front() == this && seen_ != gate.changes;
  };
  if (!gates_->mu_.AwaitUntil(absl::Condition(&may_go), SteadyDeadline(deadline))) return std::nullopt;
  seen_ = gate.changes;
  gate.busy = true;
  gates_->AddUser(volume_);
  return Pass(gates_, volume_);
}

std::optional<VolumeGates::Pass> VolumeGates::Enter(const VolumeId& volume, absl::Time deadline) {
  const SteadyLock lock(&mu_);
  Gate& gate = AddUser(volume);
  const auto is_free = [&gate] { return !gate.busy; };
  if (!mu_.AwaitUntil(absl::Condition(&is_free), SteadyDeadline(deadline))) {
    RemoveUser(volume);
    return std::nullopt;
  }
  gate.busy = true;
  return Pass(this, volume);
}

void VolumeGates::WakeWaiters(const VolumeId& volume) {
  const SteadyLock lock(&mu_);
  const auto found = gates_.find(volume);
  if (found == gates_.end()) return;
  ++found->second->changes;
}

std::vector<VolumeId> VolumeGates::ListAwaitedVolumes() {
  const SteadyLock lock(&mu_);
  std::vector<VolumeId> volumes;
  for (const auto& [volume, gate] : gates_)
    if (!gate->line.empty()) volumes.push_back(volume);
  return volumes;
}

VolumeGates::Gate& VolumeGates::AddUser(const VolumeId& volume) {
  std::unique_ptr<Gate>& gate = gates_[volume];
  if (gate == nullptr) gate = std::make_unique<Gate>();
  ++gate->users;
  return *gate;
}

void VolumeGates::RemoveUser(const VolumeId& volume) {
  const auto found = gates_.find(volume);
  if (--found->second->users == 0) gates_.erase(found);
}

void VolumeGates::LeaveGate(const VolumeId& volume) {
  const SteadyLock lock(&mu_);
  Gate& gate = *gates_.at(volume);
  gate.busy = false;
  RemoveUser(volume);
}

}  // namespace lunkeeper
