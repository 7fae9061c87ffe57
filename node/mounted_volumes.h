#pragma once
// What is asked of a volume while it is in use: how full it is, and that it grow. Knows no protobuf.
// Thread-safe for different volumes; GetUsage may run beside any other call. May be repeated. Failure:
// NOT_FOUND for a volume that is not staged here or not at that path, and as the seams say.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/datapath/initiator.h"
#include "devices/filesystem/filesystem.h"
#include "devices/filesystem/mounter.h"
#include "node/device_mounts.h"

namespace lunkeeper {

struct ExpandRequest {
  VolumeId volume;
  std::string path;
  uint64_t required_bytes = 0;
  uint64_t limit_bytes = 0;  // 0: no limit
  absl::Time deadline;
};

class MountedVolumes {
 public:
  // All outlive this.
  MountedVolumes(Initiator& initiator, Filesystem& filesystem, Mounter& mounter)
      : initiator_(initiator), filesystem_(filesystem), device_mounts_(initiator, mounter) {}

  // Of a block volume only total_bytes is known.
  absl::StatusOr<Usage> GetUsage(const VolumeId& volume, const std::string& path, absl::Time deadline);
  // Grows the device to the LUN's size, and a mounted file system to the device's. The device's size then.
  // OUT_OF_RANGE: it is not in the range asked for.
  absl::StatusOr<uint64_t> ExpandVolume(const ExpandRequest& request);

 private:
  Initiator& initiator_;
  Filesystem& filesystem_;
  DeviceMounts device_mounts_;
};

}  // namespace lunkeeper
