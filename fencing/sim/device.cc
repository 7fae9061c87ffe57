// The data path of a machine: sessions, writes, reconnect, and the end of a device.

#include "fencing/sim/api.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kAnswer = 2_s, kReplacement = 10_s, kRelease = 8_s;

}  // namespace

void Machine::Attach(const ArrayId& array, const VolumeId& volume, Generation generation) {
  auto& device = devices_[volume];
  if (device.generation >= generation && !device.failed) return;
  device = {array, volume, generation, 0, false, world_.now(), std::nullopt, 0};
  LogIn(device);
}

// Answered by the array when the old session's commands are over.
void Machine::LogIn(Device& device) {
  device.session = 0;
  const auto attempt = ++device.attempt;
  auto& array = world_.FindArray(device.array);
  world_.Call<uint64_t>(
      endpoint_, array.endpoint(), kAnswer,
      [&array, id = id_, volume = device.volume, generation = device.generation](auto reply) {
        array.Login(id, volume, generation, reply);
      },
      [this, volume = device.volume, attempt, life = life_](const uint64_t* session) {
        if (session && Alive(life) && !frozen_) LoggedIn(volume, attempt, *session);
      });
}

void Machine::LoggedIn(const VolumeId& volume, uint64_t attempt, uint64_t session) {
  const auto found = devices_.find(volume);
  if (found == devices_.end() || found->second.attempt != attempt || found->second.session != 0) return;
  auto& device = found->second;
  if (device.failed) return;
  if (session == 0) return Fail(device);  // refused: fenced, or revoked
  device.session = session;
  device.lost_at.reset();
  if (device.pending) Submit(device);
}

void Machine::Fail(Device& device) {
  if (world_.Has(Mutant::kDeviceRevives)) return;
  device.failed = true;
  device.session = 0;
  device.pending.reset();
}

// Sends the pending write; no answer in time means that the session is lost.
void Machine::Submit(Device& device) {
  auto& array = world_.FindArray(device.array);
  const auto write = *device.pending;
  const auto volume = device.volume;
  const auto session = device.session;
  world_.Send(endpoint_, array.endpoint(), [this, &array, session, write, volume, life = life_] {
    array.Submit(session, write, [this, &array, session, write, volume, life] {
      world_.Send(array.endpoint(), endpoint_, [this, session, write, volume, life] {
        const auto found = devices_.find(volume);
        if (!Alive(life) || frozen_ || found == devices_.end()) return;
        auto& now = found->second;
        if (now.session != session || !now.pending || now.pending->sequence != write.sequence) return;
        now.pending.reset();
        world_.checker->Acknowledged(volume, write);
        for (const auto& [uid, container] : containers_)
          if (container.pod.volumes.contains(now.array) &&
              container.pod.volumes.at(now.array).contains(volume))
            wrote_at_[container.pod.id] = world_.now();
      });
    });
  });
  world_.After(kAnswer, [this, volume, session, write, life = life_] {
    const auto found = devices_.find(volume);
    if (!Alive(life) || frozen_ || found == devices_.end()) return;
    auto& now = found->second;
    if (now.session != session || !now.pending || now.pending->sequence != write.sequence) return;
    now.lost_at = world_.now();
    LogIn(now);
  });
}

// One write at a time to each volume.
void Machine::WriteOn(const Uid& uid) {
  const auto found = containers_.find(uid);
  if (found == containers_.end() || !found->second.running) return;
  Span think = 200_ms;
  for (const auto& workload : world_.api->workloads())
    if (workload.id == found->second.pod.id) think = workload.think;
  if (!frozen_)
    for (const auto& [array, volumes] : found->second.pod.volumes)
      for (const auto& volume : volumes) {
        const auto device = devices_.find(volume);
        if (device == devices_.end() || device->second.session == 0 || device->second.pending) continue;
        device->second.pending = world_.checker->NextWrite(volume);
        Submit(device->second);
      }
  world_.After(world_.random().Between(think / 2, 3 * think / 2), [this, uid, life = life_] {
    if (Alive(life)) WriteOn(uid);
  });
}

// Reconnects what is lost, gives up what stayed away too long.
void Machine::LookAtDevices() {
  for (auto& [volume, device] : devices_) {
    if (device.failed) continue;
    if (device.session != 0) {
      // After a thaw the timers of what was in flight are gone.
      if (device.pending && !device.lost_at) device.lost_at = world_.now();
      if (device.pending && world_.now() - *device.lost_at > 2 * kAnswer) LogIn(device);
      if (!device.pending) device.lost_at.reset();
      continue;
    }
    if (!device.lost_at) device.lost_at = world_.now();
    if (world_.now() - *device.lost_at > kReplacement) {
      Fail(device);
    } else {
      LogIn(device);
    }
  }
  SendReleases();
}

// A grant of ours which nothing here uses, left over by a reboot or an answer that was lost, is given back.
void Machine::LookForLostGrants() {
  if (plugin_hung_) return;
  for (auto& array : world_.arrays)
    world_.Call<ArrayView>(
        endpoint_, array->endpoint(), kAnswer,
        [&at = *array](auto reply) {
          if (at.serves()) reply(at.View());
        },
        [this, &at = *array, life = life_](const ArrayView* view) {
          if (!view || !Alive(life) || frozen_) return;
          for (const auto& held : view->holdings)
            if (held.node == id_ && !devices_.contains(held.volume) && !asked_[held.volume] &&
                !releases_.contains(held.volume))
              releases_[held.volume] = {at.id(), at.GenerationOf(held.volume)};
        });
}

void Machine::SendReleases() {
  for (const auto& [volume, release] : releases_) {
    auto& replica = *world_.random().Pick(world_.replicas);
    world_.Call<bool>(
        endpoint_, replica.endpoint(), kRelease,
        [&replica, volume = volume, release = release, id = id_](auto reply) {
          replica.Release(release.array, volume, id, release.generation, reply);
        },
        [this, volume = volume, generation = release.generation, life = life_](const bool* released) {
          if (!Alive(life) || !released || !*released) return;
          const auto found = releases_.find(volume);
          if (found != releases_.end() && found->second.generation == generation) releases_.erase(found);
        });
  }
}

// What no container uses and no pod waits for is unmounted, detached, and its grant released.
void Machine::Unstage() {
  std::erase_if(devices_, [&](const auto& entry) {
    const auto& device = entry.second;
    if (device.pending && !device.failed) return false;
    for (const auto& [uid, container] : containers_)
      if (container.pod.volumes.contains(device.array) &&
          container.pod.volumes.at(device.array).contains(entry.first) &&
          !(container.ending && !container.started))
        return false;
    releases_[entry.first] = {device.array, device.generation};
    return true;
  });
}

}  // namespace lunkeeper::fencing::sim
