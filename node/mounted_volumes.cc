#include "node/mounted_volumes.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "node/paths.h"

namespace lunkeeper {
namespace {

absl::Status VolumeNotFound(const VolumeId& volume, const std::string& where) {
  return absl::NotFoundError(absl::StrCat("volume ", volume.value(), " is not ", where));
}

absl::Status CheckSize(const ExpandRequest& request, uint64_t size_bytes) {
  const bool too_large = request.limit_bytes != 0 && size_bytes > request.limit_bytes;
  if (size_bytes >= request.required_bytes && !too_large) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("volume ", request.volume.value(), ": its device has ", size_bytes,
                   " bytes, which is not in the range asked for; expand it on the array with "
                   "ControllerExpandVolume first"));
}

// The kernel grows a file system through a mount that may write. Null: there is none.
const Mount* FindWritable(const std::vector<Mount>& mounts) {
  const auto writable = std::find_if(mounts.begin(), mounts.end(),
                                     [](const Mount& mount) { return !mount.is_node && !mount.read_only; });
  return writable == mounts.end() ? nullptr : &*writable;
}

}  // namespace

// Asked by kubelet each minute for each volume. The statfs runs in a child with a deadline, since it blocks
// on a dead device.
absl::StatusOr<Usage> MountedVolumes::GetUsage(const VolumeId& volume, const std::string& path,
                                               absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(volume));
  if (!device) return VolumeNotFound(volume, "staged on this node");
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, device_mounts_.ListMountsOf(*device));
  const Mount* mount = TopMountAt(mounts, path);
  if (mount == nullptr) return VolumeNotFound(volume, absl::StrCat("at ", path));
  if (mount->is_node) return Usage{.total_bytes = device->size_bytes};
  return filesystem_.UsageOf(path, deadline);
}

absl::StatusOr<uint64_t> MountedVolumes::ExpandVolume(const ExpandRequest& request) {
  ASSIGN_OR_RETURN(const std::optional<Device> there, initiator_.Find(request.volume));
  if (!there) return VolumeNotFound(request.volume, "staged on this node");
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, device_mounts_.ListMountsOf(*there));
  const Mount* mount = TopMountAt(mounts, request.path);
  const bool mounted = std::any_of(mounts.begin(), mounts.end(), [](const Mount& m) { return !m.is_node; });
  // A block volume may be staged and not published yet: then any path of the orchestrator's will do.
  if (mount == nullptr && (mounted || !PathExists(request.path)))
    return VolumeNotFound(request.volume, absl::StrCat("at ", request.path));
  // First the device, which learns the LUN's size from the array, then the file system on it.
  ASSIGN_OR_RETURN(const Device device, initiator_.Resize(request.volume));
  FAIL_POINT("node.expand.resized");
  RETURN_IF_ERROR(CheckSize(request, device.size_bytes));
  if (mount == nullptr || mount->is_node) return device.size_bytes;
  const std::optional<FilesystemType> type = ParseFilesystemType(mount->type);
  if (mount->read_only) mount = FindWritable(mounts);
  // A file system that nothing here may write grows when it is next staged writable.
  if (mount == nullptr || !type) return device.size_bytes;
  RETURN_IF_ERROR(filesystem_.GrowMounted(device.path, mount->target, *type, request.deadline));
  FAIL_POINT("node.expand.grown");
  return device.size_bytes;
}

}  // namespace lunkeeper
