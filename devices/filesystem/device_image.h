#pragma once
// Finds out what is on a device, from a copy in memory of its first and last few MiB.
//
// A child process makes the copy, so that a dead device costs its caller a deadline and no more. libblkid
// then works on the copy, in this process. It is sparse: zeroes take no room. Thread-safe.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "devices/filesystem/filesystem.h"

namespace lunkeeper {

struct DeviceImage {
  UniqueFd file;  // as large as the device; a hole where it was not read
  uint64_t bytes = 0;
  uint32_t sector_bytes = 512;
  bool blank_edges = false;  // the first and the last MiB are zero
};

// UNAVAILABLE: it cannot be read. DEADLINE_EXCEEDED.
absl::StatusOr<DeviceImage> ReadDeviceImage(const std::string& device, absl::Time deadline);

absl::StatusOr<FilesystemProbe> ClassifyImage(const DeviceImage& image);

struct DeviceHead {
  uint64_t device_bytes = 0;
  std::string bytes;  // the first kSuperblockBytes (superblock.h)
};

absl::StatusOr<DeviceHead> ReadDeviceHead(const std::string& device, absl::Time deadline);

// Whether the file system of that type, mounted or not, is as large as its device. Reads its superblock only.
absl::StatusOr<bool> FillsDevice(const std::string& device, FilesystemType type, absl::Time deadline);

}  // namespace lunkeeper
