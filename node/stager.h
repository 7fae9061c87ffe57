#pragma once
// Stage and unstage: a grant becomes a device and a mounted file system, and the other way round. Knows no
// protobuf. Thread-safe for different volumes; for one volume, one call at a time (the service's lock sees to
// that). Every call looks at the mounts, devices and grants that exist, so it may be repeated after a crash
// at any line. Only a loss that no call has returned yet is remembered. A stage that fails undoes what it
// did, unless the volume was staged before, or a tool that writes is still at work on it (ABORTED; see
// filesystem.h). Failure: as CSI's tables for NodeStageVolume and NodeUnstageVolume say; the message names
// the volume and says what to do.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "devices/datapath/initiator.h"
#include "devices/filesystem/filesystem.h"
#include "devices/filesystem/mounter.h"
#include "node/capability.h"
#include "node/device_mounts.h"
#include "node/grant_source.h"

namespace lunkeeper {

struct StageRequest {
  VolumeId volume;
  std::string staging_path;
  Capability capability;
  std::optional<Grant> published;  // from publish_context
  absl::Time deadline;
  // The longest wait for other nodes to release the volume; never beyond `deadline`.
  absl::Duration longest_wait = absl::InfiniteDuration();
  // Of a publish: what was staged as a file system is one, so nothing is formatted.
  bool has_filesystem = false;
};

class Stager {
 public:
  // `grants` may be null: then only volumes with a publish_context can be staged. All outlive this.
  Stager(const NodeId& node, Initiator& initiator, Filesystem& filesystem, Mounter& mounter,
         GrantSource* grants)
      : node_(node),
        initiator_(initiator),
        filesystem_(filesystem),
        mounter_(mounter),
        grants_(grants),
        device_mounts_(initiator, mounter) {}

  absl::Status StageVolume(const StageRequest& request);
  absl::Status UnstageVolume(const VolumeId& volume, const std::string& staging_path, absl::Time deadline);

  // Of a device that is attached, and mounted at the staging path or nowhere: unmounts a file system there,
  // checks it and mounts it again. The array is asked whether the volume is for this use. It undoes nothing,
  // and what was not written is said by the next UnstageVolume.
  absl::Status StageAgain(const StageRequest& request, const Device& device);

  // The last two steps of UnstageVolume, for a volume that is not mounted, whose device failed for good and
  // that nobody asks for: data that it lost are only logged. FAILED_PRECONDITION: a process holds the device
  // open.
  absl::Status RemoveForgotten(const VolumeId& volume, absl::Time deadline);
  // Releases the grant that this node took of a volume, unless a device here may be of that grant.
  absl::Status ReleaseUnusedGrant(const VolumeId& volume, absl::Time deadline);

 private:
  absl::StatusOr<Grant> AcquireGrant(const StageRequest& request);
  absl::StatusOr<bool> IsStaged(const StageRequest& request, const Grant& grant);
  absl::Status StageGranted(const StageRequest& request, const Grant& grant);
  absl::StatusOr<Device> AttachDevice(const StageRequest& request, const Grant& grant);
  absl::Status RemoveStaleDevice(const Device& device, const StageRequest& request);
  absl::Status StageAttached(const StageRequest& request, const Device& device);
  absl::Status StageFilesystem(const StageRequest& request, const Device& device);
  absl::Status CheckNotRaw(const StageRequest& request, const Device& device);
  absl::Status MountFilesystem(const StageRequest& request, const Device& device, FilesystemType type);
  absl::Status GrowUnused(const StageRequest& request, const Device& device, FilesystemType type);
  absl::Status CheckStaged(const StageRequest& request, const Device& device, const Mount& staged);
  absl::Status CheckLabel(const StageRequest& request, const Device& device, FilesystemType type);
  absl::StatusOr<FilesystemType> PrepareFilesystem(const StageRequest& request, const Device& device);
  absl::StatusOr<FilesystemType> MakeFilesystem(const StageRequest& request, const Device& device);
  void UnmountUnused(const StageRequest& request);
  void UndoStage(const StageRequest& request, absl::Time deadline);
  absl::Status DetachDevice(const VolumeId& volume);
  absl::Status DetachWithLoss(const VolumeId& volume);
  absl::StatusOr<bool> MayHaveCached(const VolumeId& volume, const std::string& staging_path);
  absl::Status WriteBackMounted(const VolumeId& volume, const std::string& staging_path, absl::Time deadline);
  absl::Status TakeLoss(const VolumeId& volume);
  std::string DescribeUse(const VolumeId& volume);

  const NodeId node_;
  Initiator& initiator_;
  Filesystem& filesystem_;
  Mounter& mounter_;
  GrantSource* const grants_;
  DeviceMounts device_mounts_;

  absl::Mutex mutex_;
  // What file systems could not write, of volumes whose unstage is not done yet. It ends with the process:
  // then the log alone has said it.
  std::map<VolumeId, absl::Status> losses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
