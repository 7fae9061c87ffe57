#pragma once
// A node for the tests of heartbeats: it sends them twenty times a second, and its devices are a list that
// the test sets. Thread-safe. `rig` outlives it.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "fencing/agent/heartbeat_sender.h"
#include "fencing/agent/heartbeat_stream.h"
#include "plugin/testing/coordinator_rig.h"

namespace lunkeeper {

struct HeartbeatingNode {
  HeartbeatingNode(CoordinatorRig& rig, const std::vector<uint16_t>& ports, const NodeId& id,
                   absl::Duration every = absl::Milliseconds(50))
      : replicas(Resolved(rig.Connect(ports))),
        sender(StartHeartbeatSender(
            {.node = id, .every = every}, SendOverGrpc(*replicas, id),
            {.devices = [this] { return Look(); },
             .fail = [this](const Device& device, const std::string&) { return Fail(device); },
             .closed = [this](const std::vector<Device>& seen) { return ListClosed(seen); },
             .is_idle = [this](const Device&) { return idle.load(); },
             .kubelet_ok = [this] { return kubelet_ok.load(); },
             .set_limits = [this](const VolumeId& volume,
                                  const VolumeLimits& limits) { return SetLimits(volume, limits); }})) {}
  HeartbeatingNode(CoordinatorRig& rig, const std::vector<uint16_t>& ports)
      : HeartbeatingNode(rig, ports, rig.node) {}

  // So that the first heartbeat has somebody to go to.
  static std::unique_ptr<Replicas> Resolved(std::unique_ptr<Replicas> replicas) {
    replicas->ListReplicas(absl::Now() + absl::Seconds(20));
    return replicas;
  }

  absl::StatusOr<std::vector<Device>> Look() {
    ++looks;
    absl::MutexLock lock(&mutex);
    return devices;
  }
  void Set(absl::StatusOr<std::vector<Device>> seen) {
    absl::MutexLock lock(&mutex);
    devices = std::move(seen);
  }

  fencing::VolumeSet ListClosed(const std::vector<Device>& seen) const {
    fencing::VolumeSet all;
    for (const Device& device : seen) all.insert(device.volume);
    return closed ? all : fencing::VolumeSet();
  }

  absl::Status Fail(const Device& device) {
    absl::MutexLock lock(&mutex);
    ++calls;
    if (refusing) return absl::UnavailableError("the data path does not answer");
    for (Device& each : *devices) {
      if (each.volume == device.volume && each.target == device.target) each.health = DeviceHealth::kFailed;
    }
    return absl::OkStatus();
  }
  absl::Status SetLimits(const VolumeId& volume, const VolumeLimits& limits) {
    absl::MutexLock lock(&mutex);
    if (refusing) return absl::UnavailableError("the data path does not answer");
    for (Device& each : *devices)
      if (each.volume == volume) each.limits = limits;
    return absl::OkStatus();
  }
  VolumeLimits LimitsOf(const VolumeId& volume) {
    absl::MutexLock lock(&mutex);
    for (const Device& each : *devices)
      if (each.volume == volume) return each.limits;
    return {};
  }
  bool IsFailed(const VolumeId& volume) {
    absl::MutexLock lock(&mutex);
    for (const Device& each : *devices) {
      if (each.volume == volume) return each.health == DeviceHealth::kFailed;
    }
    return false;
  }

  std::atomic<bool> kubelet_ok = true;
  std::atomic<bool> idle = false;    // every device
  std::atomic<bool> closed = false;  // every file system, to writes
  std::atomic<bool> refusing = false;
  std::atomic<int> calls = 0, looks = 0;
  absl::Mutex mutex;
  absl::StatusOr<std::vector<Device>> devices = std::vector<Device>();
  std::unique_ptr<Replicas> replicas;
  std::unique_ptr<HeartbeatSender> sender;
};

inline Device DeviceOf(const std::string& volume, DeviceHealth health = DeviceHealth::kHealthy) {
  Device device;
  device.volume = VolumeId(volume);
  device.health = health;
  return device;
}

}  // namespace lunkeeper
