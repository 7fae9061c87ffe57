#pragma once
// The seam between the Node service and the way a LUN becomes a block device on this machine.
// Thread-safe. The devices outlive the caller: they belong to the data path (or the kernel) and are found
// again by List. Every call may be repeated. Failure, beyond what each call says:
//   UNAVAILABLE          the data path does not answer: try again. (The devices of one that is dead for
//                        certain are found and detached: they have failed for good)
//   DEADLINE_EXCEEDED    the target does not answer
//   PERMISSION_DENIED    the target refused the login: the grant is gone (fenced or released)
//   RESOURCE_EXHAUSTED   no loop device, no memory in the pool

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/latency.h"
#include "devices/types.h"
#include "devices/volume_limits.h"

namespace lunkeeper {

struct AttachRequest {
  VolumeId volume;
  Connection connection;
  std::string serial;       // must be what the LUN answers
  uint64_t size_bytes = 0;  // the LUN must be at least this large
  bool read_only = false;
  VolumeLimits limits = {};
  absl::Time deadline = absl::InfiniteFuture();  // when to give up, at the latest
};

enum class DeviceHealth {
  kHealthy,
  kReconnecting,  // I/O waits: for a new session, or for a target that has fallen silent
  kFailed,        // fenced, or away for too long: every I/O fails, and for good
};

inline const char* ToString(DeviceHealth health) {
  switch (health) {
    case DeviceHealth::kHealthy:
      return "healthy";
    case DeviceHealth::kReconnecting:
      return "reconnecting";
    case DeviceHealth::kFailed:
      break;
  }
  return "failed";
}

struct IoCounters {
  uint64_t reads = 0, writes = 0, flushes = 0, read_bytes = 0, written_bytes = 0, errors = 0;
};

// What is only told where it is asked for (ListServedDevices).
struct DeviceStatistics {
  LatencyCounts reads, writes, flushes;
  uint64_t reconnects = 0;
  uint64_t digest_errors = 0;                  // reconnects after data or headers that came changed
  absl::Time attached = absl::InfinitePast();  // which means that it is not known
  // Since when the used portal is that one, and how often it was another one before. Not known: as above.
  absl::Time path_since = absl::InfinitePast();
  uint64_t path_moves = 0;
};

struct Device {
  VolumeId volume;
  std::string path;  // /dev/loopN
  uint64_t size_bytes = 0;
  bool read_only = false;
  Iqn target;
  std::string portal;                      // where the target is
  std::vector<std::string> other_portals;  // and where else
  std::string used_portal;                 // of the last good login; empty: not known
  DeviceHealth health = DeviceHealth::kHealthy;
  std::string reason;      // why it is not healthy
  bool set_aside = false;  // failed, since the data path's workers crashed on it
  VolumeLimits limits;     // in force
  IoCounters counters;
  DeviceStatistics statistics;
};

class Initiator {
 public:
  virtual ~Initiator() = default;

  // Logs in, checks serial and size, and makes the block device. The same volume on the same target is
  // answered with the device there is. FAILED_PRECONDITION: another serial, a smaller LUN, or a device of
  // this volume on another target (detach it first).
  virtual absl::StatusOr<Device> Attach(const AttachRequest& request) = 0;
  // Writes back what the block device has cached, removes it and logs out. OK when there is none. A device
  // that has failed for good is removed without its target. Otherwise the device stays: UNAVAILABLE: the
  // target is away, and what is cached cannot be written back yet. DATA_LOSS: writes failed since the
  // attach, or the data path died with the device (said twice, as the first answer may not arrive).
  // FAILED_PRECONDITION: the block device is still open (mounted, or held by a process).
  virtual absl::Status Detach(const VolumeId& volume) = 0;
  // From now on every I/O of the device fails, and for good, whatever the target says; what is under way
  // fails too, and may have been done. OK when there is no device of this volume on this target.
  virtual absl::Status Fail(const VolumeId& volume, const Iqn& target, const std::string& reason) = 0;
  // From now on the device keeps these limits, unless it has newer ones (VolumeLimits::version). OK when
  // there is no device. UNIMPLEMENTED: the data path is too old.
  virtual absl::Status SetLimits(const VolumeId& volume, const VolumeLimits& limits) = 0;
  // Makes the block device as large as the LUN is now; answers with the new size.
  virtual absl::StatusOr<Device> Resize(const VolumeId& volume) = 0;
  virtual absl::StatusOr<std::vector<Device>> List() = 0;
  // nullopt: not attached.
  virtual absl::StatusOr<std::optional<Device>> Find(const VolumeId& volume) = 0;
  // Whether a data path of this machine made the block device of that number: this one, or one that this one
  // knows nothing of. Asks only the kernel, and waits for nothing.
  virtual bool IsOfAnyDatapath(dev_t number) = 0;
};

}  // namespace lunkeeper
