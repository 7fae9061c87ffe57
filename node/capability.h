#pragma once
// A CSI volume capability as this driver reads it. Pure; thread-safe.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "csi/v1/csi.pb.h"
#include "devices/array/array.h"
#include "devices/filesystem/filesystem.h"

namespace lunkeeper {

struct Capability {
  bool block = false;
  std::optional<FilesystemType> type;  // none: what is there, or ext4
  std::vector<std::string> mount_options;
  Access access = Access::kExclusive;
  bool single_target = false;  // SINGLE_NODE_SINGLE_WRITER
};

// The file system comes from the capability, or else from "fsType" in the volume context. INVALID_ARGUMENT
// names what is absent or unknown; FAILED_PRECONDITION: a file system for many writing nodes, which neither
// ext4 nor XFS is.
absl::StatusOr<Capability> ParseCapability(const csi::v1::VolumeCapability& message,
                                           const std::map<std::string, std::string>& volume_context);

}  // namespace lunkeeper
