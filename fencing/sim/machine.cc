// What runs on a machine, each every so often: the plugin's heartbeats, the kubelet's lease and its sync with
// the API server, the reconnecting of devices, and the release of grants that nothing uses. The kubelet's
// sync is level-triggered, as a real one's: it compares the pods that the API server has with the containers
// that are there, ends the ones that are too many, and stages and starts what is missing.

#include "fencing/sim/machine.h"

#include <algorithm>

#include "fencing/sim/api.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/deployment.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kHeartbeatEvery = 500_ms, kSync = 700_ms, kDevices = 500_ms, kGrants = 5_s, kNodeCall = 4_s,
               kDeadlyFor = 20_s;

}  // namespace

Machine::Machine(World& world, NodeName name, int instance)
    : world_(world),
      name_(std::move(name)),
      endpoint_(world.AddEndpoint()),
      id_(name_.value() + ".000000000000000" + std::to_string(instance)),
      data_path_(world, *this) {
  StartPluginIn(world_.random().Between(0_ms, kHeartbeatEvery));
  Every(kHeartbeatEvery, &Machine::NoteOpenWays);
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

void Machine::StartPluginIn(Span delay) {
  world_.After(delay, [this, start = ++plugin_starts_] {
    if (start != plugin_starts_ || !powered_) return;
    plugins_.push_back(std::make_unique<NodePlugin>(world_, *this, data_path_));
    plugin_ = plugins_.back().get();
    plugin_->Hold(frozen_ || plugin_hung_);
  });
}

void Machine::KillPlugin() {
  ++plugin_starts_;
  if (auto* plugin = std::exchange(plugin_, nullptr)) plugin->Kill();
}

void Machine::SetFrozen(bool on) {
  frozen_ = on;
  if (plugin_ != nullptr) plugin_->Hold(frozen_ || plugin_hung_);
  for (auto* replica : world_.deployment->ReplicasOn(*this)) replica->Hold(on);
}

void Machine::StepClock(Span by) {
  clock_error_ = clock_error_ + by;
  for (auto* replica : world_.deployment->ReplicasOn(*this)) replica->StepClock(by);
}

void Machine::HangPlugin(bool on) {
  plugin_hung_ = on;
  if (plugin_ != nullptr) plugin_->Hold(frozen_ || plugin_hung_);
}

uint64_t Machine::MillisSinceBoot() const {
  return static_cast<uint64_t>((world_.now() - booted_at_).milliseconds());
}

void Machine::End() { KillPlugin(); }

bool Machine::ended() const {
  return std::ranges::all_of(plugins_, [](const auto& plugin) { return plugin->ended(); });
}

void Machine::PowerOff() {
  KillPlugin();
  powered_ = false;
  ++life_;
  for (auto* replica : world_.deployment->ReplicasOn(*this)) replica->LosePower();
}

void Machine::ShutDown() {
  ClosePlugin();
  for (auto* replica : world_.deployment->ReplicasOn(*this)) replica->EndInOrder();
  world_.After(world_.random().Between(50_ms, 400_ms), [this] {
    // Not if it was mended meanwhile.
    if (!world_.checker->IsSick(id_, Cause::kDead)) return;
    PowerOff();
    ended_in_order_ = true;
  });
}

void Machine::PowerOn() {
  if (powered_ || retired_) return;
  powered_ = true;
  frozen_ = ended_in_order_ = false;
  data_path_.DetachAll();
  containers_.clear();
  booted_at_ = world_.now();
  StartPluginIn(world_.random().Between(0_ms, kHeartbeatEvery));
  registered_ = false;
  RenewLease();
}

void Machine::Retire() {
  PowerOff();
  retired_ = true;
}

void Machine::ClosePlugin() {
  if (!powered_ || frozen_) return;
  KillPlugin();
  StartPluginIn(world_.random().Between(500_ms, 8_s));
  for (auto& replica : world_.replicas)
    world_.Send(endpoint_, replica->endpoint(), [&to = *replica, id = id_] { to.OnClosed(id); });
}

bool Machine::Heartbeats() const {
  if (blocked_ > 0 && world_.Has(Mutant::kBlockedIsSilent)) return false;
  return powered_ && !frozen_ && !plugin_hung_ && plugin_ != nullptr;
}

void Machine::NoteOpenWays() {
  if (Heartbeats()) plugin_->grants().NoteOpenWays();
}

void Machine::RenewLease() {
  if (kubelet_hung_) return;
  world_.Send(endpoint_, world_.api->endpoint(), [this, id = id_, life = life_, error = clock_error_] {
    if (!world_.api->up || life != life_) return;
    world_.api->Renew(name_, id, error);
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
        if (pods && IsAlive(life) && !frozen_ && !kubelet_hung_) Reconcile(*pods);
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
      const auto* device = data_path_.FindDevice(volume);
      if (device && device->failed && !container.started && !InUse(volume)) {
        data_path_.Detach(volume);  // left over: it is detached and staged anew
        device = nullptr;
      }
      ready &= device && device->session != 0;
      failed |= device && device->failed;
      const bool may_ask = plugin_ != nullptr && !plugin_hung_ && !plugin_->grants().Releases(volume);
      if (!device && !container.started && may_ask) plugin_->grants().Ask(array, volume);
    }
  }
  if (ready && !failed && !container.started) {
    container.started = container.running = true;
    container.started_at = world_.now();
    world_.checker->Reads(pod);
    WriteOn(pod.uid);
    DieSoonOf(pod);
  }
  if (failed) container.running = false;
  world_.Send(endpoint_, world_.api->endpoint(), [this, uid = pod.uid, running = container.running, failed] {
    if (world_.api->up) world_.api->Report(uid, running, failed);
  });
}

void Machine::End(Container& container) {
  if (container.ending) return;
  container.ending = true;
  container.running = false;
  world_.After(world_.random().Between(50_ms, 400_ms), [this, uid = container.pod.uid, life = life_] {
    if (IsAlive(life)) containers_.erase(uid);
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

void Machine::NoteFence(const ArrayId& array, const ArrayFence& fence) {
  auto& known = known_[array];
  if (fence.generation >= known.generation) known = fence;
}

void Machine::NoteWritten(const ArrayId& array, const VolumeId& volume) {
  for (const auto& [uid, container] : containers_)
    if (container.pod.volumes.contains(array) && container.pod.volumes.at(array).contains(volume))
      wrote_at_[container.pod.id] = world_.now();
}

// One write at a time to each volume.
void Machine::WriteOn(const Uid& uid) {
  const auto found = containers_.find(uid);
  if (found == containers_.end() || !found->second.running) return;
  const Span think = world_.api->FindWorkloadOf(found->second.pod.id)->think;
  if (!frozen_)
    for (const auto& [array, volumes] : found->second.pod.volumes)
      for (const auto& volume : volumes) data_path_.WriteTo(volume);
  world_.After(world_.random().Between(think / 2, 3 * think / 2), [this, uid, life = life_] {
    if (IsAlive(life)) WriteOn(uid);
  });
}

void Machine::DieSoonOf(const Pod& pod) {
  for (const auto& [array, volumes] : pod.volumes)
    for (const auto& volume : volumes) {
      if (!world_.checker->IsPoisoned(volume)) continue;
      world_.After(world_.random().Between(100_ms, kDeadlyFor), [this, volume = volume, life = life_] {
        if (!IsAlive(life) || !world_.checker->IsPoisoned(volume) || !FindDevice(volume)) return;
        world_.Trace(id_.value() + " dies of " + volume.value());
        PowerOff();
        world_.checker->DiedOf(volume, id_);
      });
    }
}

void Machine::LookAtDevices() {
  data_path_.Reconnect();
  if (plugin_ != nullptr) plugin_->grants().SendReleases();
}

void Machine::LookForLostGrants() {
  if (plugin_ != nullptr && !plugin_hung_) plugin_->grants().LookForLost();
}

// A container that is ending and never started needs no device any more.
bool Machine::Claims(const Container& container, const Device& device) const {
  const auto used = container.pod.volumes.find(device.array);
  return used != container.pod.volumes.end() && used->second.contains(device.volume) &&
         !(container.ending && !container.started);
}

// What no container uses and no pod waits for is unmounted, detached, and its grant released.
void Machine::Unstage() {
  const auto in_use = [&](const Device& device) {
    return std::any_of(containers_.begin(), containers_.end(),
                       [&](const auto& entry) { return Claims(entry.second, device); });
  };
  for (const auto& device : data_path_.DetachUnused(in_use))
    if (plugin_ != nullptr) plugin_->grants().NoteUnused(device);
}

bool Machine::HasLeftovers(const ArrayId& array, const VolumeSet& volumes, Generation before) const {
  if (!powered_) return false;
  for (const auto& [volume, device] : data_path_.devices())
    if (device.array == array && volumes.contains(volume) && device.generation < before) return true;
  return false;
}

bool Machine::HasFailedDevice() const {
  return powered_ &&
         std::any_of(data_path_.devices().begin(), data_path_.devices().end(), [&](const auto& entry) {
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

std::optional<WorldTime> Machine::WroteAt(const Workload& workload) const {
  std::optional<WorldTime> latest;
  if (!powered_ || frozen_) return latest;
  for (const auto& [uid, container] : containers_) {
    if (!workload.Owns(container.pod.id) || !container.running) continue;
    const auto found = wrote_at_.find(container.pod.id);
    if (found != wrote_at_.end()) latest = std::max<std::optional<WorldTime>>(latest, found->second);
  }
  return latest;
}

}  // namespace lunkeeper::fencing::sim
