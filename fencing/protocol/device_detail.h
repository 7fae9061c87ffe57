#pragma once
// What a node says of the device that it has of a volume, for people who look at a VolumeLock. Nothing is
// decided by it. Each heartbeat carries a few of them (fencing/agent/detail_rotation.h). Plain values.

#include <map>
#include <string>
#include <vector>

#include "devices/types.h"

namespace lunkeeper {

enum class PathState {
  kUnknown,       // a newer node's word
  kConnected,     // I/O goes this way
  kStandby,       // and would go this way if the other one were lost
  kReconnecting,  // I/O waits for the target, whose address answers or was not asked
  kLost,          // the address does not answer
  kFailed,        // the device has failed for good, whatever the path
};

inline const char* ToText(PathState state) {
  switch (state) {
    case PathState::kConnected:
      return "connected";
    case PathState::kStandby:
      return "standby";
    case PathState::kReconnecting:
      return "reconnecting";
    case PathState::kLost:
      return "lost";
    case PathState::kFailed:
      return "failed";
    case PathState::kUnknown:
      break;
  }
  return "unknown";
}

struct DevicePath {
  std::string portal;  // host:port
  PathState state = PathState::kUnknown;
  friend bool operator==(const DevicePath&, const DevicePath&) = default;
};

struct DeviceDetail {
  std::string device;               // /dev/loopN
  std::vector<DevicePath> paths;    // to the target
  std::vector<std::string> mounts;  // where it is staged and published
  friend bool operator==(const DeviceDetail&, const DeviceDetail&) = default;
};

using DeviceDetails = std::map<VolumeId, DeviceDetail>;

// What a longer one has is left out, so that neither heartbeats nor VolumeLocks grow without bound.
inline constexpr size_t kMostPaths = 8, kMostMounts = 8, kLongestDetailText = 256;

}  // namespace lunkeeper
