// The steps of a stage, on the thread of its call:
//
//   grant    wait for the array to give this node the volume, unless publish_context brings a grant
//   attach   log in to the grant's target; a device of an earlier grant is removed first
//   hold     keep the device open for the rest of the call
//   prepare  format a blank device, check a file system
//   mount    at the staging path
//   grow     the mounted file system to the size of its device; where the kernel refuses that, unmount, grow
//            it unmounted, and mount it again
//
// and of an unstage: write back, unmount, detach, release. That order keeps data safe: with the release the
// array may give the volume to another node. A process killed between two steps leaves what it did. The
// repeated call goes on from there; without one, LeftoverSweeper removes it. Block volumes end with `hold`.
#include "node/stager.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/filesystem/mount_options.h"
#include "node/paths.h"

namespace lunkeeper {
namespace {

// Reserved of a call's time, to say who has the volume after a wait for its grant in vain.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(500);
// A detach reports a loss of data so often, at most (initiator.h).
constexpr int kMostReports = 2;
// For undoing a failed call, whose own deadline may have passed.
constexpr absl::Duration kUndoTime = absl::Seconds(30);

// Each grant has a target of its own, so a device at another target is of a grant that ended.
bool IsStale(const Device& device, const Grant& grant) {
  return device.target != grant.connection.target || device.health == DeviceHealth::kFailed;
}

bool IsReadOnlyStage(const StageRequest& request, const Device& device) {
  return device.read_only || IsReadOnlyMount(request.capability.mount_options);
}

void LogNotUndone(const VolumeId& volume, const absl::Status& status) {
  LogWarn("node", "a failed stage could not be undone",
          {{"volume", volume.value()}, {"error", std::string(status.message())}});
}

}  // namespace

absl::Status Stager::StageVolume(const StageRequest& request) {
  if (!request.capability.block)
    RETURN_IF_ERROR(RequireDirectory(request.staging_path, "staging_target_path"));
  RETURN_IF_ERROR(device_mounts_.CheckStagingKnown(request.staging_path));
  ASSIGN_OR_RETURN(const Grant grant, AcquireGrant(request));
  FAIL_POINT("node.stage.granted");
  ASSIGN_OR_RETURN(const bool staged_before, IsStaged(request, grant));
  const absl::Status status = StageGranted(request, grant);
  // A volume staged before may be in use by pods: a repeated call that fails must not take it from them.
  // ABORTED: a tool that writes is at work on the device. The repeated call finds it there.
  if (!status.ok() && !staged_before && !absl::IsAborted(status)) UndoStage(request, absl::Now() + kUndoTime);
  return status;
}

// A device alone is no stage of a file system: an earlier call may have left it there, with a tool at work.
absl::StatusOr<bool> Stager::IsStaged(const StageRequest& request, const Grant& grant) {
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(request.volume));
  if (!device || IsStale(*device, grant)) return false;
  if (request.capability.block) return true;
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, device_mounts_.ListMountsOf(*device));
  return !mounts.empty();
}

absl::StatusOr<Grant> Stager::AcquireGrant(const StageRequest& request) {
  if (request.published) {
    if (request.published->node == node_) return *request.published;
    return RefuseVolume(request.volume,
                        absl::StrCat("publish_context is for node ", request.published->node.value(),
                                     " and this is ", node_.value(), "; publish it to this node"));
  }
  if (grants_ == nullptr) {
    return RefuseVolume(request.volume,
                        "publish_context is missing, and this node has no source of grants; call "
                        "ControllerPublishVolume first, or give this node a controller to ask");
  }
  const absl::Duration wait = request.deadline - kAnswerTime - absl::Now();
  const WantedUse use{request.capability.access,
                      request.capability.block ? VolumeMode::kBlock : VolumeMode::kFilesystem};
  return grants_->Acquire(request.volume, use, std::clamp(wait, absl::ZeroDuration(), request.longest_wait));
}

absl::Status Stager::StageGranted(const StageRequest& request, const Grant& grant) {
  ASSIGN_OR_RETURN(const Device device, AttachDevice(request, grant));
  FAIL_POINT("node.stage.attached");
  return StageAttached(request, device);
}

absl::Status Stager::StageAttached(const StageRequest& request, const Device& device) {
  ASSIGN_OR_RETURN(const UniqueFd held, device_mounts_.HoldDevice(device));
  if (!request.capability.block) return StageFilesystem(request, device);
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, device_mounts_.ListMountsOf(device));
  const bool mounted = std::any_of(mounts.begin(), mounts.end(), [](const Mount& m) { return !m.is_node; });
  if (!mounted) return filesystem_.PrepareRaw(device.path, request.deadline - kAnswerTime);
  return absl::AlreadyExistsError(
      absl::StrCat("volume ", request.volume.value(),
                   " is staged as a file system; unstage it before using it as a block device"));
}

absl::StatusOr<Device> Stager::AttachDevice(const StageRequest& request, const Grant& grant) {
  ASSIGN_OR_RETURN(const std::optional<Device> there, initiator_.Find(request.volume));
  if (there && IsStale(*there, grant)) RETURN_IF_ERROR(RemoveStaleDevice(*there, request));
  if (!there) TakeLoss(request.volume).IgnoreError();  // of a stay that has ended; the log has it
  return initiator_.Attach({.volume = request.volume,
                            .connection = grant.connection,
                            .serial = grant.serial,
                            .size_bytes = grant.size_bytes,
                            .read_only = grant.access == Access::kReadOnly,
                            .limits = grant.limits,
                            .deadline = request.deadline - kAnswerTime});
}

// The staging mount goes with the device: nothing can be read or written there any more.
absl::Status Stager::RemoveStaleDevice(const Device& device, const StageRequest& request) {
  LogInfo("node", "removing a stale device",
          {{"volume", request.volume.value()}, {"device", device.path}, {"reason", device.reason}});
  RETURN_IF_ERROR(device_mounts_.UnmountAll(request.volume, request.staging_path, request.deadline));
  FAIL_POINT("node.stage.stale_unmounted");
  // Where it failed for good, nothing keeps the next users: a loss is only logged.
  RETURN_IF_ERROR(device.health == DeviceHealth::kFailed ? DetachWithLoss(request.volume)
                                                         : DetachDevice(request.volume));
  FAIL_POINT("node.stage.stale_detached");
  return TakeLoss(request.volume);
}

absl::Status Stager::StageFilesystem(const StageRequest& request, const Device& device) {
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, mounter_.Mounts());
  if (const Mount* staged = TopMountAt(mounts, request.staging_path))
    return CheckStaged(request, device, *staged);
  RETURN_IF_ERROR(CheckNotRaw(request, device));
  ASSIGN_OR_RETURN(const FilesystemType type, PrepareFilesystem(request, device));
  RETURN_IF_ERROR(MountFilesystem(request, device, type));
  FAIL_POINT("node.stage.mounted");
  if (IsReadOnlyStage(request, device)) return absl::OkStatus();
  const absl::Status grown = GrowUnused(request, device, type);
  if (!grown.ok()) UnmountUnused(request);
  return grown;
}

absl::Status Stager::StageAgain(const StageRequest& request, const Device& device) {
  ASSIGN_OR_RETURN(const Grant grant, AcquireGrant(request));  // the one it has, unless that ended just now
  if (IsStale(device, grant)) {
    ReleaseUnusedGrant(request.volume, request.deadline).IgnoreError();  // else LeftoverSweeper does
    return RefuseVolume(request.volume, "its grant is a new one; stage it again");
  }
  RETURN_IF_ERROR(WriteBackMounted(request.volume, request.staging_path, request.deadline));
  RETURN_IF_ERROR(device_mounts_.UnmountAll(request.volume, request.staging_path, request.deadline));
  return StageAttached(request, device);
}

// Who has the raw device open writes past any file system, and may have written nothing to its edges yet: it
// would be formatted, or repaired and mounted, under that writer.
absl::Status Stager::CheckNotRaw(const StageRequest& request, const Device& device) {
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, device_mounts_.ListMountsOf(device));
  for (const Mount& mount : mounts) {
    if (!mount.is_node) continue;
    return absl::AlreadyExistsError(absl::StrCat("volume ", request.volume.value(),
                                                 " is used as a block device at ", mount.target,
                                                 "; unpublish it there before using it as a file system"));
  }
  return absl::OkStatus();
}

absl::Status Stager::MountFilesystem(const StageRequest& request, const Device& device, FilesystemType type) {
  return mounter_.MountDevice({.device = device.path,
                               .target = request.staging_path,
                               .type = type,
                               .options = request.capability.mount_options,
                               .read_only = device.read_only},
                              request.deadline);
}

// Of what is mounted at the staging path and used by no pod. Mounted growth comes first: the kernel keeps a
// journal of it and it takes seconds, while resize2fs keeps none, and needs a whole check before it.
absl::Status Stager::GrowUnused(const StageRequest& request, const Device& device, FilesystemType type) {
  const absl::Status grown =
      filesystem_.GrowMounted(device.path, request.staging_path, type, request.deadline);
  if (!absl::IsFailedPrecondition(grown)) return grown;
  LogInfo("node", "grows unmounted",
          {{"volume", request.volume.value()}, {"why", std::string(grown.message())}});
  RETURN_IF_ERROR(mounter_.Unmount(request.staging_path, /*lazy=*/false, request.deadline));
  RETURN_IF_ERROR(
      filesystem_.GrowUnmounted({device.path, type, request.volume.value()}, request.deadline - kAnswerTime));
  FAIL_POINT("node.stage.grown");
  return MountFilesystem(request, device, type);
}

// Undoes a mount that this call made and that nobody uses yet. It must not stay: if the device died under it,
// kubelet, which looks at the path before it calls again, would see an I/O error there and never call. Asks
// only the kernel, since the data path may be what died.
void Stager::UnmountUnused(const StageRequest& request) {
  const absl::Status status = mounter_.Unmount(request.staging_path, /*lazy=*/false, absl::Now() + kUndoTime);
  if (!status.ok()) LogNotUndone(request.volume, status);
}

// Something is mounted at the staging path already: fine if it is what was asked for.
absl::Status Stager::CheckStaged(const StageRequest& request, const Device& device, const Mount& staged) {
  ASSIGN_OR_RETURN(const dev_t number, mounter_.NumberOf(device.path));
  if (staged.device != number || staged.is_node) {
    return RefuseVolume(request.volume, absl::StrCat("something else is mounted at ", request.staging_path,
                                                     "; unmount it, or stage the volume elsewhere"));
  }
  const bool other_type = request.capability.type && staged.type != ToString(*request.capability.type);
  if (other_type || staged.read_only != IsReadOnlyStage(request, device)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "volume ", request.volume.value(), " is staged at ", request.staging_path, " as ", staged.type,
        staged.read_only ? ", read-only" : ", writable", "; unstage it before staging it in another way"));
  }
  const std::optional<FilesystemType> type = ParseFilesystemType(staged.type);
  if (type) RETURN_IF_ERROR(CheckLabel(request, device, *type));
  // The earlier call may have been killed after its mount and before it grew the file system.
  if (staged.read_only || !type) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, device_mounts_.ListMountsOf(device));
  if (mounts.size() == 1) return GrowUnused(request, device, *type);
  const absl::Status grown =
      filesystem_.GrowMounted(device.path, request.staging_path, *type, request.deadline);
  // In use by a pod: it grows when it is staged next.
  return absl::IsFailedPrecondition(grown) ? absl::OkStatus() : grown;
}

// Asks the kernel, by mounting it once more at its place: that is refused in any case, with EINVAL if the
// label is another one, and with EBUSY if it is the same. Texts cannot be compared: a label may have aliases,
// and its categories any order.
absl::Status Stager::CheckLabel(const StageRequest& request, const Device& device, FilesystemType type) {
  if (!AsksForLabel(request.capability.mount_options)) return absl::OkStatus();
  const absl::Status again = MountFilesystem(request, device, type);
  if (again.ok()) return mounter_.Unmount(request.staging_path, /*lazy=*/false, request.deadline);
  if (!absl::IsInvalidArgument(again)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      "volume ", request.volume.value(), " is staged at ", request.staging_path,
      " with another SELinux label, or with none; unstage it before staging it with this label"));
}

absl::StatusOr<FilesystemType> Stager::PrepareFilesystem(const StageRequest& request, const Device& device) {
  const std::optional<FilesystemType> wanted = request.capability.type;
  ASSIGN_OR_RETURN(const FilesystemProbe found, filesystem_.Probe(device.path, request.deadline));
  if (found.content == Content::kForeign) {
    return RefuseVolume(request.volume,
                        absl::StrCat("it holds ", found.description,
                                     "; it is never formatted over. operations.md, \"A file system that "
                                     "needs repair\", says how to look at a copy of it"));
  }
  if (found.content == Content::kBlank) return MakeFilesystem(request, device);
  if (wanted && *wanted != found.type) {
    return RefuseVolume(request.volume,
                        absl::StrCat("it holds ", ToString(found.type), ", and ", ToString(*wanted),
                                     " was asked for; ask for what is there"));
  }
  if (device.read_only) return found.type;
  // A node fenced in the middle of a write leaves a journal: e2fsck replays that of ext4 here, the kernel
  // that of XFS at the mount.
  RETURN_IF_ERROR(
      filesystem_.Check({device.path, found.type, request.volume.value()}, request.deadline - kAnswerTime));
  FAIL_POINT("node.stage.checked");
  return found.type;
}

absl::StatusOr<FilesystemType> Stager::MakeFilesystem(const StageRequest& request, const Device& device) {
  if (device.read_only || request.has_filesystem)
    return RefuseVolume(request.volume, absl::StrCat("it is blank", device.read_only ? " and read-only" : "",
                                                     "; stage it writable once"));
  const FilesystemType type = request.capability.type.value_or(FilesystemType::kExt4);
  RETURN_IF_ERROR(
      filesystem_.Make({device.path, type, request.volume.value()}, request.deadline - kAnswerTime));
  FAIL_POINT("node.stage.formatted");
  return type;
}

// After a failed stage of a volume that was not staged before. What cannot be undone is left to
// UnstageVolume, which nobody may call after a failed stage. So a report that writes failed is only logged.
// Mostly they are a tool's; a user's, if an earlier unstage had unmounted the volume and did not end.
void Stager::UndoStage(const StageRequest& request, absl::Time deadline) {
  absl::Status status = DetachWithLoss(request.volume);
  if (status.ok()) status = device_mounts_.CheckStagingKnown(request.staging_path);
  if (status.ok()) status = ReleaseUnusedGrant(request.volume, deadline);
  if (!status.ok()) LogNotUndone(request.volume, status);
}

absl::Status Stager::UnstageVolume(const VolumeId& volume, const std::string& staging_path,
                                   absl::Time deadline) {
  RETURN_IF_ERROR(WriteBackMounted(volume, staging_path, deadline));
  RETURN_IF_ERROR(device_mounts_.UnmountAll(volume, staging_path, deadline));
  FAIL_POINT("node.unstage.unmounted");
  const absl::Status detached = DetachDevice(volume);
  if (absl::IsDataLoss(detached)) TakeLoss(volume).IgnoreError();  // said now
  RETURN_IF_ERROR(detached);
  FAIL_POINT("node.unstage.detached");
  RETURN_IF_ERROR(ReleaseUnusedGrant(volume, deadline));
  FAIL_POINT("node.unstage.released");
  return TakeLoss(volume);
}

// A device that failed for good has nothing to write to, and its programs got an error. A reader writes
// nothing.
absl::StatusOr<bool> Stager::MayHaveCached(const VolumeId& volume, const std::string& staging_path) {
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(volume));
  if (!device || device->health == DeviceHealth::kFailed) return false;
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, device_mounts_.ListMountsOf(*device));
  const Mount* staged = TopMountAt(mounts, staging_path);
  return staged != nullptr && !staged->is_node && !staged->read_only;
}

// Only a file system knows what it gave up without asking the device, for instance when it shut down; of
// requests that failed, the detach tells. Its answer comes once, and a later step of the unstage may fail. So
// it is kept until the volume is gone from here, and returned then: nothing is left to do for a repeated
// call, and the next node need not wait for one.
absl::Status Stager::WriteBackMounted(const VolumeId& volume, const std::string& staging_path,
                                      absl::Time deadline) {
  ASSIGN_OR_RETURN(const bool cached, MayHaveCached(volume, staging_path));
  if (!cached) return absl::OkStatus();
  const absl::Status written = mounter_.WriteBack(staging_path, deadline);
  if (written.ok() || absl::IsDeadlineExceeded(written)) return written;
  LogError("node", "a file system could not be written back",
           {{"volume", volume.value()}, {"error", std::string(written.message())}});
  ASSIGN_OR_RETURN(const bool still, MayHaveCached(volume, staging_path));
  if (!still || !absl::IsDataLoss(written)) return absl::OkStatus();  // it failed for good meanwhile
  absl::MutexLock lock(&mutex_);
  losses_[volume] = absl::DataLossError(absl::StrCat(
      "volume ", volume.value(), ": ", written.message(),
      ": what was written and not synced is lost. The kernel's log says why; check the data, and "
      "restore from a backup what needs it. The volume is unstaged"));
  return absl::OkStatus();
}

// Returned once.
absl::Status Stager::TakeLoss(const VolumeId& volume) {
  absl::MutexLock lock(&mutex_);
  const auto loss = losses_.extract(volume);
  return loss.empty() ? absl::OkStatus() : loss.mapped();
}

absl::Status Stager::RemoveForgotten(const VolumeId& volume, absl::Time deadline) {
  RETURN_IF_ERROR(DetachWithLoss(volume));
  return ReleaseUnusedGrant(volume, deadline);
}

// A new grant that comes after the list stays: the release names an older generation, and the array ignores
// that.
absl::Status Stager::ReleaseUnusedGrant(const VolumeId& volume, absl::Time deadline) {
  if (grants_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<HeldGrant> held, grants_->Held(volume, deadline));
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(volume));
  for (const HeldGrant& grant : held) {
    const bool used = device && MayUse(*device, grant);
    if (!used && grant.owner == GrantOwner::kNode)
      RETURN_IF_ERROR(grants_->Release(volume, grant.generation, deadline));
  }
  return absl::OkStatus();
}

absl::Status Stager::DetachDevice(const VolumeId& volume) {
  const absl::Status status = initiator_.Detach(volume);
  if (!absl::IsFailedPrecondition(status)) return status;
  return RefuseVolume(volume, absl::StrCat("its device is still in use ", DescribeUse(volume),
                                           "; unpublish it there first (", status.message(), ")"));
}

// Reports of lost data are logged and passed over.
absl::Status Stager::DetachWithLoss(const VolumeId& volume) {
  absl::Status status = DetachDevice(volume);
  for (int report = 0; absl::IsDataLoss(status) && report < kMostReports; ++report) {
    LogError("node", "data of a volume may be lost",
             {{"volume", volume.value()}, {"error", std::string(status.message())}});
    status = DetachDevice(volume);
  }
  if (status.ok()) TakeLoss(volume).IgnoreError();  // logged when it came
  return status;
}

// For the error alone, so what cannot be read is left out.
std::string Stager::DescribeUse(const VolumeId& volume) {
  std::vector<std::string> targets;
  const absl::StatusOr<std::optional<Device>> device = initiator_.Find(volume);
  if (device.ok() && *device) {
    const std::vector<std::string> holders = ListHolders((*device)->path);
    if (!holders.empty())
      return absl::StrCat(
          "by ", absl::StrJoin(holders, ", "),
          ", which this node's own LVM or mdadm has found on it (see docs/install.md, \"LVM and "
          "RAID on nodes\")");
    const absl::StatusOr<std::vector<Mount>> mounts = device_mounts_.ListMountsOf(**device);
    for (const Mount& mount : mounts.value_or(std::vector<Mount>())) targets.push_back(mount.target);
  }
  if (!targets.empty()) return "at " + absl::StrJoin(targets, ", ");
  return "by a process, or by a container that has copied this node's mounts";
}

}  // namespace lunkeeper
