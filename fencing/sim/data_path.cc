// A write is sent in its session and acknowledged in it. When no answer comes in time the session counts as
// lost, and the device logs in anew: the array answers a login only when the commands of the old session are
// over, so the same write can then be sent again without overtaking itself.

#include "fencing/sim/data_path.h"

#include "fencing/sim/checker.h"
#include "fencing/sim/machine.h"

namespace lunkeeper::fencing::sim {
namespace {

// As the product has them in spirit: an answer is waited for about two heartbeats of the session, and a
// device fails when a replacement for its session could not be had in ten seconds.
constexpr Span kAnswer = 2_s, kReplacement = 10_s;
// A device has one login under way. Begun sooner, the next one could overtake it, and would then be ended by
// it.
constexpr Span kNextLogin = 1_s;

}  // namespace

const Device* DataPath::FindDevice(const VolumeId& volume) const {
  const auto found = devices_.find(volume);
  return found == devices_.end() ? nullptr : &found->second;
}

void DataPath::Attach(const ArrayId& array, const VolumeId& volume, Generation generation) {
  auto& device = devices_[volume];
  // An answer to an older request for a grant: what is there is as new, and works.
  if (device.generation >= generation && !device.failed) return;
  device = {array, volume, generation, 0, false, world_.now(), std::nullopt, 0, {}};
  LogIn(device);
}

std::vector<Device> DataPath::DetachUnused(const std::function<bool(const Device&)>& in_use) {
  std::vector<Device> detached;
  std::erase_if(devices_, [&](const auto& entry) {
    const Device& device = entry.second;
    if ((device.pending && !device.failed) || in_use(device)) return false;
    detached.push_back(device);
    return true;
  });
  return detached;
}

void DataPath::LogIn(Device& device) {
  device.session = 0;
  device.login_at = world_.now();
  const auto attempt = ++device.attempt;
  auto& array = world_.FindArray(device.array);
  world_.Call<uint64_t>(
      machine_.endpoint(), array.portal(), kAnswer,
      [&array, id = machine_.id(), volume = device.volume, generation = device.generation](auto reply) {
        array.Login(id, volume, generation, reply);
      },
      [this, volume = device.volume, attempt, life = machine_.life()](const uint64_t* session) {
        if (session && machine_.IsRunning(life)) OnLogin(volume, attempt, *session);
      });
}

void DataPath::OnLogin(const VolumeId& volume, uint64_t attempt, uint64_t session) {
  const auto found = devices_.find(volume);
  if (found == devices_.end() || found->second.attempt != attempt || found->second.session != 0) return;
  auto& device = found->second;
  if (device.failed) return;
  if (session == 0) return Revoke(device);  // refused: fenced, or released
  device.session = session;
  device.lost_at.reset();
  if (device.pending) SubmitWrite(device);
}

void DataPath::Revoke(Device& device) {
  if (!device.failed) world_.checker->Revoked(device.array, machine_.id(), device.volume, device.generation);
  FailDevice(device);
}

void DataPath::FailDevice(Device& device) {
  if (world_.Has(Mutant::kDeviceRevives)) return;
  device.failed = true;
  device.session = 0;
  device.pending.reset();
}

void DataPath::WriteTo(const VolumeId& volume) {
  const auto device = devices_.find(volume);
  if (device == devices_.end() || device->second.session == 0 || device->second.pending) return;
  device->second.pending = world_.checker->NextWrite(volume, machine_.id());
  SubmitWrite(device->second);
}

Device* DataPath::FindWriting(const VolumeId& volume, uint64_t session, uint64_t sequence) {
  const auto found = devices_.find(volume);
  if (found == devices_.end()) return nullptr;
  auto& device = found->second;
  const bool waits = device.session == session && device.pending && device.pending->sequence == sequence;
  return waits ? &device : nullptr;
}

void DataPath::SubmitWrite(Device& device) {
  auto& array = world_.FindArray(device.array);
  const auto write = *device.pending;
  const auto volume = device.volume;
  const auto session = device.session;
  const auto life = machine_.life();
  auto acknowledge = [this, &array, session, write, volume, life] {
    world_.Send(array.portal(), machine_.endpoint(), [this, session, write, volume, life] {
      auto* writing = machine_.IsRunning(life) ? FindWriting(volume, session, write.sequence) : nullptr;
      if (!writing) return;
      writing->pending.reset();
      world_.checker->Acknowledged(volume, write);
      machine_.NoteWritten(writing->array, volume);
    });
  };
  world_.Send(machine_.endpoint(), array.portal(),
              [&array, session, write, acknowledge] { array.Submit(session, write, acknowledge); });
  // No answer in time means that the session is lost.
  world_.After(kAnswer, [this, volume, session, write, life] {
    auto* writing = machine_.IsRunning(life) ? FindWriting(volume, session, write.sequence) : nullptr;
    if (!writing) return;
    writing->lost_at = world_.now();
    LogIn(*writing);
  });
}

void DataPath::Reconnect() {
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
      FailDevice(device);
    } else if (world_.now() - device.login_at >= kNextLogin) {
      LogIn(device);
    }
  }
}

}  // namespace lunkeeper::fencing::sim
