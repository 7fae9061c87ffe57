#pragma once
// The work of the Node service: a LUN becomes a device, a file system, a mount in a pod, and back. Knows no
// protobuf. Thread-safe for different volumes; for one volume, one call at a time (the service's lock sees to
// it). Nothing is remembered: every call looks at the mounts, the devices and the grants there are, so it may
// be repeated after a crash at any line. A Stage that fails takes back what it took, unless the volume was
// staged before. Failure: as CSI's tables for the Node RPCs say; the message names the volume and what to do.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "devices/datapath/initiator.h"
#include "devices/filesystem/filesystem.h"
#include "devices/filesystem/mounter.h"
#include "node/capability.h"
#include "node/grant_source.h"

namespace lunkeeper {

struct StageRequest {
  VolumeId volume;
  std::string staging_path;
  Capability capability;
  std::optional<Grant> published;  // from publish_context
  absl::Time deadline;
  absl::Duration longest_wait =
      absl::InfiniteDuration();  // with others who have the volume, until `deadline`
};

struct PublishRequest {
  VolumeId volume;
  std::string staging_path;
  std::string target_path;
  Capability capability;
  bool read_only = false;
  std::optional<Grant> published;
  absl::Time deadline;
};

// FAILED_PRECONDITION, naming the volume.
absl::Status Refused(const VolumeId& volume, const std::string& why);

class Volumes {
 public:
  // `grants` may be null: then only volumes with a publish_context can be staged. All outlive this.
  Volumes(const NodeId& node, Initiator& initiator, Filesystem& filesystem, Mounter& mounter,
          GrantSource* grants)
      : node_(node), initiator_(initiator), filesystem_(filesystem), mounter_(mounter), grants_(grants) {}

  absl::Status Stage(const StageRequest& request);
  absl::Status Unstage(const VolumeId& volume, const std::string& staging_path, absl::Time deadline);
  absl::Status Publish(const PublishRequest& request);
  absl::Status Unpublish(const VolumeId& volume, const std::string& target_path, absl::Time deadline);
  // Of a block volume only total_bytes is known.
  absl::StatusOr<Usage> Stats(const VolumeId& volume, const std::string& path, absl::Time deadline);
  // Takes the device to the LUN's size, and a mounted file system to the device's. Answers with that size.
  // OUT_OF_RANGE: it is smaller than `required_bytes`, or larger than `limit_bytes` (0: no limit).
  absl::StatusOr<uint64_t> Expand(const VolumeId& volume, const std::string& path, uint64_t required_bytes,
                                  uint64_t limit_bytes, absl::Time deadline);

  // Volumes that this node took a grant of and has no device of.
  absl::StatusOr<std::vector<VolumeId>> Unused(absl::Time deadline);
  // Gives back the node's own grant of a volume that has no device here; otherwise does nothing.
  absl::Status GiveBack(const VolumeId& volume, absl::Time deadline);

  // Volumes whose device failed for good and is used by no pod: nothing of it is mounted, but perhaps at
  // kubelet's staging path. Kubelet forgets those when it is killed between Unpublish and Unstage. A pod's
  // own mount is never among them, even of a pod that is gone: while it is there, a container that is started
  // again fails, and without it would find an empty directory of the node's.
  absl::StatusOr<std::vector<VolumeId>> Forgotten();
  // Unmounts and detaches one of them. FAILED_PRECONDITION: a process holds the device.
  absl::Status RemoveForgotten(const VolumeId& volume, absl::Time deadline);

 private:
  absl::StatusOr<Grant> GrantFor(const StageRequest& request);
  absl::Status StageGranted(const StageRequest& request, const Grant& grant);
  absl::StatusOr<Device> Attach(const StageRequest& request, const Grant& grant);
  absl::StatusOr<UniqueFd> Hold(const Device& device);
  absl::Status RemoveStale(const Device& device, const StageRequest& request);
  absl::Status StageFilesystem(const StageRequest& request, const Device& device);
  absl::Status CheckStaged(const StageRequest& request, const Device& device, const Mount& staged);
  absl::StatusOr<FilesystemType> PrepareFilesystem(const StageRequest& request, const Device& device);
  void UnmountUnused(const StageRequest& request);
  void TakeBack(const VolumeId& volume, absl::Time deadline);

  absl::StatusOr<Device> LiveDevice(const PublishRequest& request);
  absl::Status CheckStagedFor(const PublishRequest& request, const Device& device,
                              const std::vector<Mount>& mounts);
  absl::Status UnmountAll(const VolumeId& volume, const std::string& target, absl::Time deadline);
  absl::Status Detach(const VolumeId& volume);
  absl::StatusOr<std::vector<Mount>> MountsOf(const Device& device);

  const NodeId node_;
  Initiator& initiator_;
  Filesystem& filesystem_;
  Mounter& mounter_;
  GrantSource* const grants_;
};

}  // namespace lunkeeper
