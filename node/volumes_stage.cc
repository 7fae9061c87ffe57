// Stage and Unstage: from a grant to a mounted file system, and back.
#include <fcntl.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "node/mount_table.h"
#include "node/paths.h"
#include "node/volumes.h"

namespace lunkeeper {
namespace {

// What is left of a call's time to answer in, once a wait for a grant has been in vain.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(500);
// For taking back what a failed call took; the call's own time may be over.
constexpr absl::Duration kUndoTime = absl::Seconds(30);
// What kubelet's staging paths end with.
constexpr char kKubeletStaging[] = "/globalmount";
// A smaller difference is the tool's rounding, and not worth a whole check of the file system.
constexpr uint64_t kWorthGrowing = 8 << 20;

bool IsStale(const Device& device, const Grant& grant) {
  return device.target != grant.connection.target || device.health == DeviceHealth::kFailed;
}

void LogNotUndone(const VolumeId& volume, const absl::Status& status) {
  LogWarn("node", "a failed stage could not be undone",
          {{"volume", volume.value()}, {"error", std::string(status.message())}});
}

bool IsStaging(const Mount& mount) { return !mount.is_node && absl::EndsWith(mount.target, kKubeletStaging); }

}  // namespace

absl::Status Refused(const VolumeId& volume, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat("volume ", volume.value(), ": ", why));
}

absl::Status Volumes::Stage(const StageRequest& request) {
  if (!request.capability.block)
    RETURN_IF_ERROR(RequireDirectory(request.staging_path, "staging_target_path"));
  ASSIGN_OR_RETURN(const Grant grant, GrantFor(request));
  FAIL_POINT("node.stage.granted");
  ASSIGN_OR_RETURN(const std::optional<Device> before, initiator_.Find(request.volume));
  const absl::Status status = StageGranted(request, grant);
  const bool staged_before = before && !IsStale(*before, grant);
  if (!status.ok() && !staged_before) TakeBack(request.volume, absl::Now() + kUndoTime);
  return status;
}

absl::StatusOr<Grant> Volumes::GrantFor(const StageRequest& request) {
  if (request.published) {
    if (request.published->node == node_) return *request.published;
    return Refused(request.volume,
                   absl::StrCat("publish_context is for node ", request.published->node.value(),
                                " and this is ", node_.value(), "; publish it to this node"));
  }
  if (grants_ == nullptr) {
    return Refused(
        request.volume,
        "publish_context is missing, and this node has no source of grants; call ControllerPublishVolume "
        "first, or give this node a controller to ask");
  }
  const absl::Duration wait = request.deadline - kAnswerTime - absl::Now();
  return grants_->Acquire(request.volume, request.capability.access,
                          std::clamp(wait, absl::ZeroDuration(), request.longest_wait));
}

absl::Status Volumes::StageGranted(const StageRequest& request, const Grant& grant) {
  ASSIGN_OR_RETURN(const Device device, Attach(request, grant));
  FAIL_POINT("node.stage.attached");
  ASSIGN_OR_RETURN(const UniqueFd held, Hold(device));
  if (!request.capability.block) return StageFilesystem(request, device);
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, MountsOf(device));
  const bool mounted = std::any_of(mounts.begin(), mounts.end(), [](const Mount& m) { return !m.is_node; });
  if (!mounted) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("volume ", request.volume.value(),
                   " is staged as a file system; unstage it before using it as a block device"));
}

absl::StatusOr<Device> Volumes::Attach(const StageRequest& request, const Grant& grant) {
  ASSIGN_OR_RETURN(const std::optional<Device> there, initiator_.Find(request.volume));
  if (there && IsStale(*there, grant)) RETURN_IF_ERROR(RemoveStale(*there, request));
  return initiator_.Attach({.volume = request.volume,
                            .connection = grant.connection,
                            .serial = grant.serial,
                            .size_bytes = grant.size_bytes,
                            .read_only = grant.access == Access::kReadOnly,
                            .deadline = request.deadline - kAnswerTime});
}

// The device, open: until it is closed, its path leads to it and nowhere else. Without that, a data path that
// died would free the path in the middle of a Stage, and another volume there would be formatted.
absl::StatusOr<UniqueFd> Volumes::Hold(const Device& device) {
  UniqueFd held(::open(device.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  // What was opened is the volume's device if the volume still has it.
  ASSIGN_OR_RETURN(const std::optional<Device> still, initiator_.Find(device.volume));
  if (held && still && still->path == device.path && still->health != DeviceHealth::kFailed) return held;
  return absl::UnavailableError(absl::StrCat("volume ", device.volume.value(), ": its device ", device.path,
                                             " has gone again (the data path was restarted?); try again"));
}

// A device of an earlier grant, or one that failed for good: its staging mount goes with it, since nothing
// can be read or written there any more.
absl::Status Volumes::RemoveStale(const Device& device, const StageRequest& request) {
  LogInfo("node", "removing a stale device",
          {{"volume", request.volume.value()}, {"device", device.path}, {"reason", device.reason}});
  RETURN_IF_ERROR(UnmountAll(request.volume, request.staging_path, request.deadline));
  FAIL_POINT("node.stage.stale_unmounted");
  RETURN_IF_ERROR(Detach(request.volume));
  FAIL_POINT("node.stage.stale_detached");
  return absl::OkStatus();
}

absl::Status Volumes::StageFilesystem(const StageRequest& request, const Device& device) {
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, mounter_.Mounts());
  if (const Mount* staged = TopMountAt(mounts, request.staging_path))
    return CheckStaged(request, device, *staged);
  ASSIGN_OR_RETURN(const FilesystemType type, PrepareFilesystem(request, device));
  RETURN_IF_ERROR(mounter_.MountDevice({.device = device.path,
                                        .target = request.staging_path,
                                        .type = type,
                                        .options = request.capability.mount_options,
                                        .read_only = device.read_only},
                                       request.deadline));
  FAIL_POINT("node.stage.mounted");
  if (device.read_only) return absl::OkStatus();
  const absl::Status grown =
      filesystem_.GrowMounted(device.path, request.staging_path, type, request.deadline);
  if (!grown.ok()) UnmountUnused(request);
  return grown;
}

// What this very call mounted, and nobody uses yet. It must not stay: the device may have died under it, and
// kubelet, which looks at the path before it calls again, would find an I/O error there and never call. Asks
// nobody but the kernel, as the data path may be what died.
void Volumes::UnmountUnused(const StageRequest& request) {
  const absl::Status status = mounter_.Unmount(request.staging_path, /*lazy=*/false, absl::Now() + kUndoTime);
  if (!status.ok()) LogNotUndone(request.volume, status);
}

// Something is mounted at the staging path already: fine if it is what was asked for.
absl::Status Volumes::CheckStaged(const StageRequest& request, const Device& device, const Mount& staged) {
  ASSIGN_OR_RETURN(const dev_t number, mounter_.NumberOf(device.path));
  if (staged.device != number || staged.is_node) {
    return Refused(request.volume, absl::StrCat("something else is mounted at ", request.staging_path,
                                                "; unmount it, or stage the volume elsewhere"));
  }
  const bool other_type = request.capability.type && staged.type != ToString(*request.capability.type);
  const auto& options = request.capability.mount_options;
  const bool wants_read_only =
      device.read_only || std::find(options.begin(), options.end(), "ro") != options.end();
  if (other_type || staged.read_only != wants_read_only) {
    return absl::AlreadyExistsError(absl::StrCat(
        "volume ", request.volume.value(), " is staged at ", request.staging_path, " as ", staged.type,
        staged.read_only ? ", read-only" : ", writable", "; unstage it before staging it in another way"));
  }
  const std::optional<FilesystemType> type = ParseFilesystemType(staged.type);
  if (staged.read_only || !type) return absl::OkStatus();
  return filesystem_.GrowMounted(device.path, request.staging_path, *type, request.deadline);
}

absl::StatusOr<FilesystemType> Volumes::PrepareFilesystem(const StageRequest& request, const Device& device) {
  const std::optional<FilesystemType> wanted = request.capability.type;
  ASSIGN_OR_RETURN(const ProbeResult found, filesystem_.Probe(device.path, request.deadline));
  if (found.content == Content::kForeign) {
    return Refused(request.volume,
                   absl::StrCat("it holds ", found.description,
                                "; it is never formatted over. Use it as a block volume, or wipe it "
                                "yourself if the data is not needed"));
  }
  if (found.content == Content::kBlank) {
    if (device.read_only) return Refused(request.volume, "it is blank and read-only; stage it writable once");
    const FilesystemType type = wanted.value_or(FilesystemType::kExt4);
    RETURN_IF_ERROR(filesystem_.Make(device.path, type, request.deadline));
    FAIL_POINT("node.stage.formatted");
    return type;
  }
  if (wanted && *wanted != found.type) {
    return Refused(request.volume, absl::StrCat("it holds ", ToString(found.type), ", and ",
                                                ToString(*wanted), " was asked for; ask for what is there"));
  }
  if (device.read_only) return found.type;
  RETURN_IF_ERROR(filesystem_.Check(device.path, found.type, request.deadline));
  FAIL_POINT("node.stage.checked");
  if (found.device_bytes >= found.filesystem_bytes + kWorthGrowing) {
    RETURN_IF_ERROR(filesystem_.GrowUnmounted(device.path, found.type, request.deadline));
    FAIL_POINT("node.stage.grown");
  }
  return found.type;
}

// After a failed Stage of a volume that was not staged before. What cannot be undone is left to Unstage.
void Volumes::TakeBack(const VolumeId& volume, absl::Time deadline) {
  absl::Status status = initiator_.Detach(volume);
  if (status.ok()) status = GiveBack(volume, deadline);
  if (!status.ok()) LogNotUndone(volume, status);
}

absl::Status Volumes::Unstage(const VolumeId& volume, const std::string& staging_path, absl::Time deadline) {
  RETURN_IF_ERROR(UnmountAll(volume, staging_path, deadline));
  FAIL_POINT("node.unstage.unmounted");
  RETURN_IF_ERROR(Detach(volume));
  FAIL_POINT("node.unstage.detached");
  RETURN_IF_ERROR(GiveBack(volume, deadline));
  FAIL_POINT("node.unstage.released");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<VolumeId>> Volumes::Unused(absl::Time deadline) {
  std::vector<VolumeId> unused;
  if (grants_ == nullptr) return unused;
  ASSIGN_OR_RETURN(const std::vector<HeldGrant> held, grants_->Held(VolumeId(), deadline));
  ASSIGN_OR_RETURN(const std::vector<Device> devices, initiator_.List());
  for (const HeldGrant& grant : held) {
    const bool used = std::any_of(devices.begin(), devices.end(),
                                  [&](const Device& device) { return device.volume == grant.volume; });
    if (!used && grant.owner == GrantOwner::kNode) unused.push_back(grant.volume);
  }
  return unused;
}

absl::StatusOr<std::vector<VolumeId>> Volumes::Forgotten() {
  std::vector<VolumeId> forgotten;
  ASSIGN_OR_RETURN(const std::vector<Device> devices, initiator_.List());
  for (const Device& device : devices) {
    if (device.health != DeviceHealth::kFailed) continue;
    const absl::StatusOr<std::vector<Mount>> mounts = MountsOf(device);
    if (!mounts.ok()) continue;
    if (std::all_of(mounts->begin(), mounts->end(), IsStaging)) forgotten.push_back(device.volume);
  }
  return forgotten;
}

absl::Status Volumes::RemoveForgotten(const VolumeId& volume, absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(volume));
  if (!device || device->health != DeviceHealth::kFailed) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, MountsOf(*device));
  if (!std::all_of(mounts.begin(), mounts.end(), IsStaging)) return absl::OkStatus();
  for (const Mount& mount : mounts) RETURN_IF_ERROR(UnmountAll(volume, mount.target, deadline));
  RETURN_IF_ERROR(Detach(volume));
  return GiveBack(volume, deadline);
}

// Looks before it asks for the device: a grant that came in between is of another generation.
absl::Status Volumes::GiveBack(const VolumeId& volume, absl::Time deadline) {
  if (grants_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<HeldGrant> held, grants_->Held(volume, deadline));
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(volume));
  if (device) return absl::OkStatus();
  for (const HeldGrant& grant : held) {
    if (grant.owner == GrantOwner::kNode)
      RETURN_IF_ERROR(grants_->Release(volume, grant.generation, deadline));
  }
  return absl::OkStatus();
}

absl::Status Volumes::Detach(const VolumeId& volume) {
  const absl::Status status = initiator_.Detach(volume);
  if (!absl::IsFailedPrecondition(status)) return status;
  std::vector<std::string> targets;
  const absl::StatusOr<std::optional<Device>> device = initiator_.Find(volume);
  if (device.ok() && *device) {
    const absl::StatusOr<std::vector<Mount>> mounts = MountsOf(**device);
    if (mounts.ok()) {
      for (const Mount& mount : *mounts) targets.push_back(mount.target);
    }
  }
  const std::string where = targets.empty() ? "by a process" : "at " + absl::StrJoin(targets, ", ");
  return Refused(volume, absl::StrCat("its device is still in use ", where, "; unpublish it there first (",
                                      std::string(status.message()), ")"));
}

}  // namespace lunkeeper
