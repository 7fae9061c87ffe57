// Publish and Unpublish, statistics and growth: what happens to a volume that is staged.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "node/mount_table.h"
#include "node/paths.h"
#include "node/volumes.h"

namespace lunkeeper {
namespace {

constexpr int kMostStackedMounts = 16;

absl::Status NotHere(const VolumeId& volume, const std::string& where) {
  return absl::NotFoundError(absl::StrCat("volume ", volume.value(), " is not ", where));
}

bool WantsReadOnly(const PublishRequest& request, const Device& device) {
  return request.read_only || device.read_only || request.capability.access == Access::kReadOnly;
}

}  // namespace

absl::Status Volumes::Publish(const PublishRequest& request) {
  ASSIGN_OR_RETURN(const Device device, LiveDevice(request));
  ASSIGN_OR_RETURN(const UniqueFd held, Hold(device));
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, mounter_.Mounts());
  RETURN_IF_ERROR(CheckStagedFor(request, device, mounts));
  const bool block = request.capability.block;
  const bool read_only = WantsReadOnly(request, device);
  if (const Mount* there = TopMountAt(mounts, request.target_path)) {
    ASSIGN_OR_RETURN(const dev_t number, mounter_.NumberOf(device.path));
    if (there->device == number && there->is_node == block && (block || there->read_only == read_only)) {
      return absl::OkStatus();
    }
    return absl::AlreadyExistsError(
        absl::StrCat("volume ", request.volume.value(), ": ", request.target_path,
                     " has another mount, or this volume in another way; unpublish it "
                     "first"));
  }
  const PathKind kind = block ? PathKind::kFile : PathKind::kDirectory;
  ASSIGN_OR_RETURN(const bool made, MakeTarget(request.target_path, kind));
  FAIL_POINT("node.publish.target_made");
  const std::string& source = block ? device.path : request.staging_path;
  const absl::Status bound = mounter_.Bind(source, request.target_path, read_only, request.deadline);
  if (!bound.ok() && made) RemoveTarget(request.target_path).IgnoreError();  // or Unpublish does it
  FAIL_POINT("node.publish.bound");
  return bound;
}

// The volume's device, if it is of a grant that is still this node's and has not failed.
absl::StatusOr<Device> Volumes::LiveDevice(const PublishRequest& request) {
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(request.volume));
  if (!device) return Refused(request.volume, "it is not staged on this node; call NodeStageVolume first");
  if (device->health == DeviceHealth::kFailed) {
    return Refused(request.volume, absl::StrCat("its device failed for good (", device->reason,
                                                "); unstage it and stage it again"));
  }
  if (request.published && request.published->connection.target != device->target) {
    return Refused(request.volume,
                   "publish_context is of another grant than the staged device; unstage it and stage "
                   "it again");
  }
  if (grants_ == nullptr) return *device;
  ASSIGN_OR_RETURN(const std::vector<HeldGrant> held, grants_->Held(request.volume, request.deadline));
  const bool still = std::any_of(held.begin(), held.end(),
                                 [&](const HeldGrant& grant) { return grant.target == device->target; });
  if (!still) return Refused(request.volume, "this node's grant is gone; unstage it and stage it again");
  return *device;
}

absl::Status Volumes::CheckStagedFor(const PublishRequest& request, const Device& device,
                                     const std::vector<Mount>& mounts) {
  ASSIGN_OR_RETURN(const dev_t number, mounter_.NumberOf(device.path));
  if (request.capability.block) {
    if (WantsReadOnly(request, device) && !device.read_only) {
      return Refused(request.volume,
                     "a writable block device cannot be published read-only, since programs would still "
                     "write to it; publish it with a reader access mode");
    }
  } else {
    const Mount* staged = TopMountAt(mounts, request.staging_path);
    if (staged == nullptr || staged->device != number || staged->is_node) {
      return Refused(request.volume, absl::StrCat("its live device is not mounted at ", request.staging_path,
                                                  "; unstage it and stage it again"));
    }
    if (staged->read_only && !WantsReadOnly(request, device)) {
      return Refused(request.volume, "it is staged read-only; publish it read-only");
    }
  }
  if (!request.capability.single_target) return absl::OkStatus();
  for (const Mount& mount : mounts) {
    const bool elsewhere = mount.target != request.staging_path && mount.target != request.target_path;
    if (mount.device == number && elsewhere) {
      return Refused(request.volume, absl::StrCat("it has a single writer and is published at ", mount.target,
                                                  "; unpublish it there first"));
    }
  }
  return absl::OkStatus();
}

absl::Status Volumes::Unpublish(const VolumeId& volume, const std::string& target_path, absl::Time deadline) {
  RETURN_IF_ERROR(UnmountAll(volume, target_path, deadline));
  FAIL_POINT("node.unpublish.unmounted");
  RETURN_IF_ERROR(RemoveTarget(target_path));
  FAIL_POINT("node.unpublish.target_removed");
  return absl::OkStatus();
}

// Everything of this volume at `target`, and what no attached device owns any more; another volume's mount is
// refused.
absl::Status Volumes::UnmountAll(const VolumeId& volume, const std::string& target, absl::Time deadline) {
  for (int round = 0; round < kMostStackedMounts; ++round) {
    ASSIGN_OR_RETURN(const std::vector<Mount> mounts, mounter_.Mounts());
    const Mount* mount = TopMountAt(mounts, target);
    if (mount == nullptr) return absl::OkStatus();
    bool failed_for_good = false;
    ASSIGN_OR_RETURN(const std::vector<Device> devices, initiator_.List());
    for (const Device& device : devices) {
      const absl::StatusOr<dev_t> number = mounter_.NumberOf(device.path);
      if (!number.ok() || *number != mount->device) continue;
      if (device.volume != volume) {
        return Refused(volume, absl::StrCat("volume ", device.volume.value(), " is mounted at ", target,
                                            "; it is left there"));
      }
      failed_for_good = device.health == DeviceHealth::kFailed;
    }
    const absl::Status status = mounter_.Unmount(target, /*lazy=*/false, deadline);
    if (absl::IsFailedPrecondition(status) && failed_for_good) {
      RETURN_IF_ERROR(mounter_.Unmount(target, /*lazy=*/true, deadline));
    } else if (!status.ok()) {
      return status;
    }
  }
  return Refused(volume,
                 absl::StrCat("more than ", kMostStackedMounts, " mounts on top of each other at ", target));
}

absl::StatusOr<std::vector<Mount>> Volumes::MountsOf(const Device& device) {
  ASSIGN_OR_RETURN(const dev_t number, mounter_.NumberOf(device.path));
  ASSIGN_OR_RETURN(std::vector<Mount> mounts, mounter_.Mounts());
  std::erase_if(mounts, [number](const Mount& mount) { return mount.device != number; });
  return mounts;
}

absl::StatusOr<Usage> Volumes::Stats(const VolumeId& volume, const std::string& path, absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(volume));
  if (!device) return NotHere(volume, "staged on this node");
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, MountsOf(*device));
  const Mount* mount = TopMountAt(mounts, path);
  if (mount == nullptr) return NotHere(volume, absl::StrCat("at ", path));
  if (mount->is_node) return Usage{.total_bytes = device->size_bytes};
  return filesystem_.UsageOf(path, deadline);
}

absl::StatusOr<uint64_t> Volumes::Expand(const VolumeId& volume, const std::string& path,
                                         uint64_t required_bytes, uint64_t limit_bytes, absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::optional<Device> there, initiator_.Find(volume));
  if (!there) return NotHere(volume, "staged on this node");
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, MountsOf(*there));
  const Mount* mount = TopMountAt(mounts, path);
  const bool mounted = std::any_of(mounts.begin(), mounts.end(), [](const Mount& m) { return !m.is_node; });
  // A block volume may be staged and not published yet: then any path of the orchestrator's will do.
  if (mount == nullptr && (mounted || !Exists(path))) return NotHere(volume, absl::StrCat("at ", path));
  ASSIGN_OR_RETURN(const Device device, initiator_.Resize(volume));
  FAIL_POINT("node.expand.resized");
  if (device.size_bytes < required_bytes || (limit_bytes != 0 && device.size_bytes > limit_bytes)) {
    return absl::OutOfRangeError(
        absl::StrCat("volume ", volume.value(), ": its device has ", device.size_bytes,
                     " bytes, which is not in the range asked for; expand it on the array with "
                     "ControllerExpandVolume first"));
  }
  if (mount == nullptr || mount->is_node) return device.size_bytes;
  const std::optional<FilesystemType> type = ParseFilesystemType(mount->type);
  if (device.read_only || !type) return device.size_bytes;  // grown when it is next staged writable
  RETURN_IF_ERROR(filesystem_.GrowMounted(device.path, path, *type, deadline));
  FAIL_POINT("node.expand.grown");
  return device.size_bytes;
}

}  // namespace lunkeeper
