// A publish checks, in this order and on the thread of its call: that the device exists and works, that the
// array still counts this node as its owner, that it is staged where the caller says, and that nothing else
// is at the target, or, for a single writer, at a second one. Only then it makes the target and binds it; a
// raw device is then closed to writes, or opened, as all its targets together want it. The check of the grant
// is what keeps a container that restarts on a fenced node from starting over a dead mount. A process killed
// after the target was made leaves an empty directory or file: the repeated call uses it, and unpublish
// removes it.
#include "node/publisher.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "devices/filesystem/mount_options.h"
#include "node/closed_volumes.h"
#include "node/paths.h"

namespace lunkeeper {
namespace {

bool WantsReadOnly(const PublishRequest& request, const Device& device) {
  return request.read_only || device.read_only || request.capability.access == Access::kReadOnly ||
         IsReadOnlyMount(request.capability.mount_options);
}

bool IsNode(const Mount& mount) { return mount.is_node; }

StageRequest ToStageRequest(const PublishRequest& request) {
  return {.volume = request.volume,
          .staging_path = request.staging_path,
          .capability = request.capability,
          .published = request.published,
          .deadline = request.deadline,
          .has_filesystem = !request.capability.block};
}

}  // namespace

absl::Status Publisher::PublishVolume(const PublishRequest& request) {
  if (stages_unstaged_) RETURN_IF_ERROR(StageUnstaged(request));
  ASSIGN_OR_RETURN(const Device device, FindLiveDevice(request));
  RETURN_IF_ERROR(StageUnmounted(request, device));
  ASSIGN_OR_RETURN(const UniqueFd held, device_mounts_.HoldDevice(device));
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, mounter_.Mounts());
  RETURN_IF_ERROR(CheckStagedFor(request, device, mounts));
  if (const Mount* there = TopMountAt(mounts, request.target_path)) {
    RETURN_IF_ERROR(CheckPublished(request, device, *there));
  } else {
    RETURN_IF_ERROR(CheckOnlyTarget(request, device, mounts));
    RETURN_IF_ERROR(BindTarget(request, device));
  }
  return request.capability.block ? SettleBlockAccess(device) : absl::OkStatus();
}

// LeftoverSweeper takes a volume for forgotten that kubelet could not publish for some minutes, without a
// call here: a Secret that it has to hand over was missing, for instance.
absl::Status Publisher::StageUnstaged(const PublishRequest& request) {
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(request.volume));
  if (device) return absl::OkStatus();
  // What was unstaged is mounted nowhere. And a data path that nobody reaches may still serve this volume, at
  // places that another request named.
  RETURN_IF_ERROR(device_mounts_.CheckKnown([](const Mount&) { return true; }));
  return stager_.StageVolume(ToStageRequest(request));
}

// A device that is mounted nowhere may be a raw one that was staged as that, which kubelet does not tell from
// a file system of another PersistentVolume with the same handle. Or it is in the middle of ReopenClosed or
// of a stage: a tool is at work on it, or the process that began it has died. So it is staged: the array says
// what the volume is for, and no tool has it any more.
absl::Status Publisher::StageUnmounted(const PublishRequest& request, const Device& device) {
  if (!request.capability.block && device.health != DeviceHealth::kHealthy) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, device_mounts_.ListMountsOf(device));
  if (mounts.empty()) return stager_.StageAgain(ToStageRequest(request), device);
  return request.capability.block ? absl::OkStatus() : ReopenClosed(request, device, mounts);
}

// Kubelet keeps a volume staged for as long as any pod of the node wants it. So the pod that follows at once
// on the last one, in a rollout or after a deletion by force, would get a file system that has closed itself
// after an error, and get it so at each new try. Once nobody is on it, it is checked and mounted anew. A
// reader gets an ext4 as it is; of an XFS that has shut down nothing can be read.
absl::Status Publisher::ReopenClosed(const PublishRequest& request, const Device& device,
                                     const std::vector<Mount>& mounts) {
  const Mount* staged = TopMountAt(mounts, request.staging_path);
  const bool repeated = TopMountAt(mounts, request.target_path) != nullptr;
  if (staged == nullptr || repeated) return absl::OkStatus();
  const bool closed = HasClosedItself(*staged) && !WantsReadOnly(request, device);
  if (!closed && !HasShutDown(*staged, filesystem_)) return absl::OkStatus();
  for (const Mount& mount : mounts) {
    if (mount.target == request.staging_path) continue;
    return RefuseVolume(request.volume,
                        absl::StrCat("its file system met an error and closed itself, and ", mount.target,
                                     " uses it; end that pod, and it is checked and mounted anew"));
  }
  RETURN_IF_ERROR(stager_.StageAgain(ToStageRequest(request), device));
  if (!HasShutDown(*staged, filesystem_)) return absl::OkStatus();
  return RefuseVolume(request.volume,
                      "its file system has shut itself down, and a container that has copied this node's "
                      "mounts keeps it so; end that container, or drain the node");
}

// Something is mounted at the target already: fine if it is what was asked for.
absl::Status Publisher::CheckPublished(const PublishRequest& request, const Device& device,
                                       const Mount& there) {
  const bool block = request.capability.block;
  ASSIGN_OR_RETURN(const dev_t number, mounter_.NumberOf(device.path));
  const bool same_access = there.read_only == WantsReadOnly(request, device);
  if (there.device == number && there.is_node == block && same_access) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("volume ", request.volume.value(), ": ", request.target_path,
                   " has another mount, or this volume in another way; unpublish it first"));
}

absl::Status Publisher::BindTarget(const PublishRequest& request, const Device& device) {
  const bool block = request.capability.block;
  const PathKind kind = block ? PathKind::kFile : PathKind::kDirectory;
  ASSIGN_OR_RETURN(const bool made, MakeTarget(request.target_path, kind));
  FAIL_POINT("node.publish.target_made");
  const std::string& source = block ? device.path : request.staging_path;
  const absl::Status bound =
      mounter_.Bind(source, request.target_path, WantsReadOnly(request, device), request.deadline);
  // If this fails too, unpublish removes it.
  if (!bound.ok() && made) RemoveTarget(request.target_path).IgnoreError();
  FAIL_POINT("node.publish.bound");
  return bound;
}

// A read-only bind mount of a device node keeps nobody from writing to the device. So the device itself is
// closed to writes while all that have it are readers; the mounts say which are. Beside a writer a reader can
// be held back only by what runs it, such as a container runtime.
absl::Status Publisher::SettleBlockAccess(const Device& device) {
  if (device.read_only) return absl::OkStatus();  // for all, and for its whole life
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, device_mounts_.ListMountsOf(device));
  const bool readers_alone =
      std::all_of(mounts.begin(), mounts.end(), [](const Mount& mount) { return mount.read_only; });
  return mounter_.SetReadOnly(device.path, readers_alone);
}

// The writer that left may have been the last. The data path is asked only if any device's node is mounted,
// so a repeated call that has nothing left to do works without it.
absl::Status Publisher::SettleRemaining(const VolumeId& volume) {
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, mounter_.Mounts());
  if (std::none_of(mounts.begin(), mounts.end(), IsNode)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(volume));
  if (!device || device->health == DeviceHealth::kFailed) return absl::OkStatus();  // nobody can write to it
  ASSIGN_OR_RETURN(const UniqueFd held, device_mounts_.HoldDevice(*device));
  ASSIGN_OR_RETURN(const std::vector<Mount> left, device_mounts_.ListMountsOf(*device));
  // With none left it stays as it is; the next publish decides.
  if (std::none_of(left.begin(), left.end(), IsNode)) return absl::OkStatus();
  return SettleBlockAccess(*device);
}

absl::StatusOr<Device> Publisher::FindLiveDevice(const PublishRequest& request) {
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(request.volume));
  if (!device)
    return RefuseVolume(request.volume, "it is not staged on this node; call NodeStageVolume first");
  if (device->health == DeviceHealth::kFailed) {
    return RefuseVolume(request.volume, absl::StrCat("its device failed for good (", device->reason,
                                                     "); unstage it and stage it again"));
  }
  if (request.published && request.published->connection.target != device->target) {
    return RefuseVolume(request.volume,
                        "publish_context is of another grant than the staged device; unstage it and stage "
                        "it again");
  }
  RETURN_IF_ERROR(CheckGranted(request, *device));
  return *device;
}

// By target, which no two grants share: a grant of the same volume that came later is another one.
absl::Status Publisher::CheckGranted(const PublishRequest& request, const Device& device) {
  if (grants_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<HeldGrant> held, grants_->Held(request.volume, request.deadline));
  const bool still = std::any_of(held.begin(), held.end(),
                                 [&](const HeldGrant& grant) { return grant.target == device.target; });
  if (still) return absl::OkStatus();
  return RefuseVolume(request.volume, "this node's grant is gone; unstage it and stage it again");
}

absl::Status Publisher::CheckStagedFor(const PublishRequest& request, const Device& device,
                                       const std::vector<Mount>& mounts) {
  ASSIGN_OR_RETURN(const dev_t number, mounter_.NumberOf(device.path));
  if (!request.capability.block) {
    const Mount* staged = TopMountAt(mounts, request.staging_path);
    if (staged == nullptr || staged->device != number || staged->is_node) {
      return RefuseVolume(request.volume,
                          absl::StrCat("its live device is not mounted at ", request.staging_path,
                                       "; unstage it and stage it again"));
    }
    if (staged->read_only && !WantsReadOnly(request, device)) {
      return RefuseVolume(request.volume, "it is staged read-only; publish it read-only");
    }
    return absl::OkStatus();
  }
  // Its journal and its writer's blocks would be written over each other.
  const auto mounted = [number](const Mount& mount) { return mount.device == number && !mount.is_node; };
  if (std::any_of(mounts.begin(), mounts.end(), mounted))
    return RefuseVolume(request.volume, "it is mounted as a file system; unstage it and stage it again");
  return absl::OkStatus();
}

// For a new target alone. One that is there others may bind: kubelet binds a raw device to a place of its
// own, and a pod's subPath. After its restart it asks for the same target again.
absl::Status Publisher::CheckOnlyTarget(const PublishRequest& request, const Device& device,
                                        const std::vector<Mount>& mounts) {
  if (!request.capability.single_target) return absl::OkStatus();
  ASSIGN_OR_RETURN(const dev_t number, mounter_.NumberOf(device.path));
  for (const Mount& mount : mounts) {
    if (mount.device != number || mount.target == request.staging_path) continue;
    return RefuseVolume(request.volume, absl::StrCat("it has a single writer and is published at ",
                                                     mount.target, "; unpublish it there first"));
  }
  return absl::OkStatus();
}

absl::Status Publisher::UnpublishVolume(const VolumeId& volume, const std::string& target_path,
                                        TargetPath afterwards, absl::Time deadline) {
  // A target that is not mounted, or is gone, is fine: a repeated call has nothing left to do.
  RETURN_IF_ERROR(device_mounts_.UnmountAll(volume, target_path, deadline));
  FAIL_POINT("node.unpublish.unmounted");
  RETURN_IF_ERROR(SettleRemaining(volume));
  if (afterwards == TargetPath::kKept) return absl::OkStatus();
  RETURN_IF_ERROR(RemoveTarget(target_path));
  FAIL_POINT("node.unpublish.target_removed");
  return absl::OkStatus();
}

}  // namespace lunkeeper
