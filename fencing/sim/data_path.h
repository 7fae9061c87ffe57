#pragma once
// The data path of a machine: one device for each attached volume, its session with the array, one write at a
// time, reconnect, and the end of a device that was refused or stayed away too long. Driven by its machine,
// which outlives it; what comes back from the array for a former life of the machine, or while it is frozen,
// is dropped. One thread.
//
//   logging in ──answered──► connected ──write not answered──► logging in, and the write is sent again
//       │                        │
//       └──refused, or 10 s──────┴──notice of a fence──► failed, for good

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "fencing/core/event.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

struct Device {
  ArrayId array;
  VolumeId volume;
  Generation generation = 0;
  uint64_t session = 0;  // 0: logging in
  bool failed = false;
  std::optional<WorldTime> lost_at;  // while it has no session, or a write is not answered
  std::optional<Write> pending;
  uint64_t attempt = 0;  // tells answers of older logins and writes apart
  WorldTime login_at;    // the last one
};

class DataPath {
 public:
  DataPath(World& world, Machine& machine) : world_(world), machine_(machine) {}

  const std::map<VolumeId, Device>& devices() const { return devices_; }
  const Device* FindDevice(const VolumeId& volume) const;

  void Attach(const ArrayId& array, const VolumeId& volume, Generation generation);
  void Detach(const VolumeId& volume) { devices_.erase(volume); }
  // Detaches the devices that nothing uses and that have no write in flight, and returns them.
  std::vector<Device> DetachUnused(const std::function<bool(const Device&)>& in_use);
  // The machine boots.
  void DetachAll() { devices_.clear(); }
  // Begins a write, if the device is connected and has none in flight.
  void WriteTo(const VolumeId& volume);
  // Logs in again where a session is lost; gives up what stayed away too long. To be called twice a second.
  void Reconnect();
  // The volume's device fails, as it is fenced: its I/O is refused from now on.
  void Fail(const VolumeId& volume) { Revoke(devices_.at(volume)); }

 private:
  void LogIn(Device& device);
  void OnLogin(const VolumeId& volume, uint64_t attempt, uint64_t session);
  void SubmitWrite(Device& device);
  // The device whose write of this session is still the one that is waited for; null: an old answer.
  Device* FindWriting(const VolumeId& volume, uint64_t session, uint64_t sequence);
  void Revoke(Device& device);
  void FailDevice(Device& device);

  World& world_;
  Machine& machine_;
  std::map<VolumeId, Device> devices_;
};

}  // namespace lunkeeper::fencing::sim
