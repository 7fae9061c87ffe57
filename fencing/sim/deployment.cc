#include "fencing/sim/deployment.h"

#include <algorithm>

#include "fencing/sim/api.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr size_t kReplicas = 2;
constexpr Span kReplicaLook = 1_s, kTolerated = 10_s;     // the chart's tolerationSeconds
constexpr Span kStartsWithin = 1_s, kStartsAtMost = 5_s;  // a container whose image is there

bool Runs(const Replica& replica) { return replica.running() && !replica.deleted(); }

}  // namespace

Deployment::Deployment(World& world) : world_(world) {
  for (size_t i = 0; i < kReplicas; ++i) MakeReplica(*FindPlace());
  world_.After(kReplicaLook, [this] { LookAfterReplicas(); });
}

std::vector<Replica*> Deployment::ReplicasOn(const Machine& machine) const {
  std::vector<Replica*> there;
  for (const auto& replica : world_.replicas)
    if (&replica->machine() == &machine) there.push_back(replica.get());
  return there;
}

Replica* Deployment::FindLeader() const {
  for (const auto& replica : world_.replicas)
    if (replica->Leads()) return replica.get();
  return nullptr;
}

std::string Deployment::Unsettled() const {
  const auto running = std::ranges::count_if(world_.replicas, [](const auto& each) { return Runs(*each); });
  return static_cast<size_t>(running) < kReplicas ? "a controller is missing" : "";
}

void Deployment::End() {
  for (const auto& replica : world_.replicas) replica->End();
  for (const auto& replica : former_) replica->End();
}

bool Deployment::ended() const {
  const auto has_ended = [](const auto& replica) { return replica->ended(); };
  return std::ranges::all_of(world_.replicas, has_ended) && std::ranges::all_of(former_, has_ended);
}

// As the scheduler's spread has it: beside another replica only where there is no other place. The
// controllers tolerate the taint for a silent plugin.
Machine* Deployment::FindPlace() const {
  std::vector<Machine*> fit, apart;
  for (const auto& machine : world_.machines) {
    const auto node = world_.api->nodes().find(machine->name());
    if (node == world_.api->nodes().end() || node->second.node_id != machine->id()) continue;
    if (!node->second.ready || !node->second.taint.empty() || node->second.out_of_service) continue;
    fit.push_back(machine.get());
    if (std::ranges::none_of(ReplicasOn(*machine), [](const auto* each) { return !each->deleted(); }))
      apart.push_back(machine.get());
  }
  if (fit.empty()) return nullptr;
  return world_.random().Pick(apart.empty() ? fit : apart);
}

void Deployment::MakeReplica(Machine& machine) {
  const ClockError clock{.offset = world_.random().Between(1_s, 100_s),
                         .per_mille = static_cast<int>(world_.random().Between(-10, 10)),
                         .wall = machine.clock_error()};
  world_.replicas.push_back(std::make_unique<Replica>(world_, made_++, clock, machine));
  world_.Trace(world_.replicas.back()->name() + " runs on " + machine.id().value());
}

bool Deployment::IsLost(const Replica& replica) const {
  const auto node = world_.api->nodes().find(replica.machine().name());
  return node == world_.api->nodes().end() || node->second.node_id != replica.machine().id() ||
         !node->second.ready || node->second.out_of_service;
}

bool Deployment::LearnsOfItsEnd(const Replica& replica) const {
  const Machine& machine = replica.machine();
  return machine.StartsContainers() && world_.api->up &&
         world_.Open(machine.endpoint(), world_.api->endpoint()) &&
         world_.Open(world_.api->endpoint(), machine.endpoint());
}

void Deployment::LookAfterReplicas() {
  world_.After(kReplicaLook, [this] { LookAfterReplicas(); });
  if (world_.api->up) DeleteLost();
  for (const auto& replica : world_.replicas)
    if (replica->deleted() && LearnsOfItsEnd(*replica)) replica->EndInOrder();
  if (world_.api->up) MakeMissing();
  ForgetFormer();
}

// Kubernetes evicts nobody while no node is well.
void Deployment::DeleteLost() {
  for (const auto& replica : world_.replicas) {
    if (replica->deleted()) continue;
    if (!IsLost(*replica)) {
      lost_since_.erase(replica.get());
      continue;
    }
    const auto since = lost_since_.emplace(replica.get(), world_.now()).first->second;
    if (world_.now() - since < kTolerated || FindPlace() == nullptr) continue;
    world_.Trace(replica->name() + " is deleted");
    replica->Delete();
  }
}

void Deployment::MakeMissing() {
  auto there = being_made_;
  for (const auto& replica : world_.replicas) there += replica->deleted() ? 0 : 1;
  for (; there < kReplicas; ++there) {
    Machine* place = FindPlace();
    if (place == nullptr) return;
    ++being_made_;
    world_.After(world_.random().Between(kStartsWithin, kStartsAtMost), [this, place] {
      --being_made_;
      if (place->StartsContainers()) MakeReplica(*place);
    });
  }
}

// Replicas that are over, when there are enough others.
void Deployment::ForgetFormer() {
  for (size_t i = 0; i < world_.replicas.size() && world_.replicas.size() > kReplicas;) {
    auto& replica = world_.replicas[i];
    if (!replica->deleted() || replica->running()) {
      ++i;
      continue;
    }
    former_.push_back(std::move(replica));
    world_.replicas.erase(world_.replicas.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace lunkeeper::fencing::sim
