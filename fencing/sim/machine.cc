// Life of a machine, and its plugin and kubelet; the data path is in device.cc.

#include "fencing/sim/machine.h"

#include <algorithm>

#include "fencing/sim/api.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kHeartbeatEvery = 500_ms, kSync = 700_ms, kDevices = 500_ms, kGrants = 5_s, kNodeCall = 4_s,
               kWait = 30_s;

}  // namespace

Machine::Machine(World& world, NodeName name, int instance)
    : world_(world),
      name_(std::move(name)),
      endpoint_(world.AddEndpoint()),
      id_(name_.value() + "." + std::to_string(instance)) {
  Every(kHeartbeatEvery, &Machine::Heartbeat);
  Every(kSync, &Machine::SyncKubelet);
  Every(kKubeletLease, &Machine::RenewLease);
  Every(kDevices, &Machine::LookAtDevices);
  Every(kGrants, &Machine::LookForLostGrants);
}

void Machine::Every(Span period, void (Machine::*what)()) {
  world_.After(world_.random().Between(0_ms, period), [=, this] { Again(period, what); });
}

void Machine::Again(Span period, void (Machine::*what)()) {
  if (powered_ && !frozen_) (this->*what)();
  world_.After(period, [=, this] { Again(period, what); });
}

void Machine::PowerOff() {
  powered_ = false;
  ++life_;
}

void Machine::PowerOn() {
  if (powered_ || retired_) return;
  powered_ = true;
  frozen_ = false;
  devices_.clear();
  containers_.clear();
  asked_.clear();
  releases_.clear();
  sequence_ = 0;
  registered_ = false;
  RenewLease();
}

void Machine::Retire() {
  PowerOff();
  retired_ = true;
}

void Machine::ClosePlugin() {
  if (!powered_ || frozen_) return;
  plugin_back_at_ = world_.now() + world_.random().Between(500_ms, 8_s);
  for (auto& replica : world_.replicas)
    world_.Send(endpoint_, replica->endpoint(), [&to = *replica, id = id_] { to.Receive(StreamClosed{id}); });
}

void Machine::Heartbeat() {
  if (plugin_hung_ || world_.now() < plugin_back_at_) return;
  fencing::Heartbeat heartbeat{id_, "boot" + std::to_string(life_), ++sequence_, !kubelet_hung_, {}, {}, {}};
  for (const auto& [volume, device] : devices_) {
    heartbeat.present.insert(volume);
    if (device.failed || (device.pending && device.lost_at && world_.now() - *device.lost_at > 2_s))
      heartbeat.failing.insert(volume);
  }
  for (const auto& [uid, container] : containers_)
    for (const auto& [array, volumes] : container.pod.volumes)
      if (container.started) heartbeat.present.insert(volumes.begin(), volumes.end());
  if (world_.Has(Mutant::kSaysCleanTooEarly)) heartbeat.present.clear();
  for (const auto& [array, fence] : known_) heartbeat.known[array] = fence.generation;
  for (auto& replica : world_.replicas)
    world_.Send(endpoint_, replica->endpoint(),
                [&to = *replica, heartbeat] { to.ReceiveHeartbeat(heartbeat); });
  ++storage_sequence_;
  for (auto& array : world_.arrays)
    world_.Send(endpoint_, array->endpoint(), [this, &at = *array, id = id_, number = storage_sequence_] {
      if (!at.serves()) return;
      const auto note = at.Heartbeat(id, number);
      for (auto& replica : world_.replicas)
        world_.Send(at.endpoint(), replica->endpoint(), [&to = *replica, from = at.id(), id, number] {
          to.Receive(StorageHeartbeats{from, {{id, number}}});
        });
      if (note.generation != 0)
        world_.Send(at.endpoint(), endpoint_, [this, from = at.id(), note] { Notice(from, note); });
    });
}

void Machine::RenewLease() {
  if (kubelet_hung_) return;
  world_.Send(endpoint_, world_.api->endpoint(), [this, id = id_, life = life_] {
    if (!world_.api->up || life != life_) return;
    world_.api->Renew(name_, id);
    registered_ = true;
  });
}

void Machine::SyncKubelet() {
  if (kubelet_hung_ || !registered_) return;
  world_.Call<std::vector<Pod>>(
      endpoint_, world_.api->endpoint(), kNodeCall,
      [this](auto reply) {
        if (world_.api->up && world_.api->nodes().contains(name_)) reply(world_.api->PodsOn(name_));
      },
      [this, life = life_](const auto* pods) {
        if (pods && Alive(life) && !frozen_ && !kubelet_hung_) Reconcile(*pods);
      });
}

void Machine::Reconcile(const std::vector<Pod>& pods) {
  for (auto& [uid, container] : containers_) {
    const auto found = std::find_if(pods.begin(), pods.end(), [&](const Pod& pod) { return pod.uid == uid; });
    if (found == pods.end() || found->deleting) End(container);
  }
  for (const auto& pod : pods) {
    if (!pod.deleting) {
      Start(pod);
    } else if (!containers_.contains(pod.uid)) {
      world_.Send(endpoint_, world_.api->endpoint(), [this, uid = pod.uid] {
        if (world_.api->up) world_.api->Ended(uid);
      });
    }
  }
  Unstage();
}

// Stages what is missing; starts the container when all of it is there.
void Machine::Start(const Pod& pod) {
  auto& container = containers_[pod.uid];
  container.pod = pod;
  if (container.ending) return;
  bool ready = true, failed = false;
  for (const auto& [array, volumes] : pod.volumes) {
    for (const auto& volume : volumes) {
      auto found = devices_.find(volume);
      if (found != devices_.end() && found->second.failed && !container.started && !InUse(volume)) {
        devices_.erase(found);  // left over: it is detached and staged anew
        found = devices_.end();
      }
      ready &= found != devices_.end() && found->second.session != 0;
      failed |= found != devices_.end() && found->second.failed;
      const bool may_ask = !plugin_hung_ && !releases_.contains(volume);
      if (found == devices_.end() && !container.started && may_ask) Ask(array, volume);
    }
  }
  if (ready && !failed && !container.started) {
    container.started = container.running = true;
    container.started_at = world_.now();
    world_.checker->Reads(pod);
    WriteOn(pod.uid);
  }
  if (failed) container.running = false;
  world_.Send(endpoint_, world_.api->endpoint(), [this, uid = pod.uid, running = container.running, failed] {
    if (world_.api->up) world_.api->Report(uid, running, failed);
  });
}

// NodeStage: a controller replica asks the array, and blocks.
void Machine::Ask(const ArrayId& array, const VolumeId& volume) {
  auto& asked = asked_[volume];
  if (asked && world_.now() - *asked < kWait) return;
  asked = world_.now();
  auto& replica = *world_.random().Pick(world_.replicas);
  world_.Call<Generation>(
      endpoint_, replica.endpoint(), kWait,
      [&replica, array, volume, id = id_](auto reply) { replica.Acquire(array, volume, id, reply); },
      [this, array, volume, life = life_, at = asked](const Generation* generation) {
        if (!Alive(life) || asked_[volume] != at) return;
        asked_[volume].reset();
        if (generation && *generation != 0) Attach(array, volume, *generation);
      });
}

void Machine::End(Container& container) {
  if (container.ending) return;
  container.ending = true;
  container.running = false;
  world_.After(world_.random().Between(50_ms, 400_ms), [this, uid = container.pod.uid, life = life_] {
    if (Alive(life)) containers_.erase(uid);
  });
}

bool Machine::InUse(const VolumeId& volume) const {
  return std::any_of(containers_.begin(), containers_.end(), [&](const auto& entry) {
    if (!entry.second.started) return false;
    for (const auto& [array, volumes] : entry.second.pod.volumes)
      if (volumes.contains(volume)) return true;
    return false;
  });
}

void Machine::Notice(const ArrayId& array, const ArrayFence& fence) {
  if (!powered_ || frozen_ || plugin_hung_ || fence.node != id_) return;
  auto& known = known_[array];
  if (fence.generation < known.generation) return;
  known = fence;
  // Its I/O is cut at once; a grant younger than the fence is another matter.
  for (auto& [volume, device] : devices_)
    if (device.array == array && fence.volumes.contains(volume) && device.generation < fence.generation)
      Fail(device);
}

bool Machine::HasLeftovers(const ArrayId& array, const VolumeSet& volumes, Generation before) const {
  if (!powered_) return false;
  for (const auto& [volume, device] : devices_)
    if (device.array == array && volumes.contains(volume) && device.generation < before) return true;
  return false;
}

bool Machine::HasFailedDevice() const {
  return powered_ && std::any_of(devices_.begin(), devices_.end(), [&](const auto& entry) {
           const auto fence = known_.find(entry.second.array);
           return entry.second.failed && fence != known_.end() &&
                  fence->second.volumes.contains(entry.first) &&
                  entry.second.generation < fence->second.generation;
         });
}

const Container* Machine::FindContainer(const Uid& pod) const {
  const auto found = containers_.find(pod);
  return found == containers_.end() ? nullptr : &found->second;
}

const Device* Machine::FindDevice(const VolumeId& volume) const {
  const auto found = devices_.find(volume);
  return found == devices_.end() ? nullptr : &found->second;
}

std::optional<WorldTime> Machine::WroteAt(const PodId& pod) const {
  if (!powered_ || frozen_) return std::nullopt;
  for (const auto& [uid, container] : containers_) {
    if (container.pod.id != pod || !container.running) continue;
    const auto found = wrote_at_.find(pod);
    if (found != wrote_at_.end()) return found->second;
  }
  return std::nullopt;
}

}  // namespace lunkeeper::fencing::sim
