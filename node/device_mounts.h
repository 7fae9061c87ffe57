#pragma once
// A volume's device on this node, and where the kernel has it mounted: what Stager, Publisher and the others
// of node/ share. Every call asks the data path and the mount table again, so nothing is remembered that a
// crash could lose. Thread-safe. The initiator and the mounter outlive it. Failure: as those two say, unless
// a comment says more.

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "devices/datapath/initiator.h"
#include "devices/filesystem/mounter.h"

namespace lunkeeper {

// FAILED_PRECONDITION, naming the volume.
absl::Status RefuseVolume(const VolumeId& volume, const std::string& why);

// The mount visible at `target`: the last one made there. Null: none. Points into `mounts`.
const Mount* TopMountAt(const std::vector<Mount>& mounts, const std::string& target);

// What the kernel has stacked on the block device, by name: a logical volume or an array of disks that the
// host itself has found on it. Empty also where that cannot be read.
std::vector<std::string> ListHolders(const std::string& device,
                                     const std::string& sysfs = "/sys/class/block");

class DeviceMounts {
 public:
  DeviceMounts(Initiator& initiator, Mounter& mounter) : initiator_(initiator), mounter_(mounter) {}

  // Every mount of the device: its file system, bind mounts of that, and bound device nodes.
  absl::StatusOr<std::vector<Mount>> ListMountsOf(const Device& device);

  // Opens the device. Until the descriptor is closed, the device's path leads to this volume and to no other.
  // UNAVAILABLE: the volume no longer has this device.
  absl::StatusOr<UniqueFd> HoldDevice(const Device& device);

  // Unmounts everything of this volume at `target`, and what belongs to no attached device any more.
  // FAILED_PRECONDITION: another volume is mounted there, or a healthy device is in use.
  absl::Status UnmountAll(const VolumeId& volume, const std::string& target, absl::Time deadline);

  // FAILED_PRECONDITION: a mount that `counts` picks is from a device of another data path. One
  // whose socket was removed serves on, and the one that was started after it knows nothing of that one's
  // devices. They need their grants and their sessions, and which those are nobody here can tell.
  absl::Status CheckKnown(absl::FunctionRef<bool(const Mount&)> counts);
  // Likewise, of what is mounted at the staging path, or where kubelet publishes a raw device staged there.
  // A second session at that one's target would break the first, and two devices have two caches.
  absl::Status CheckStagingKnown(const std::string& staging_path);

 private:
  absl::StatusOr<std::set<dev_t>> ListNumbers();
  absl::StatusOr<bool> IsOfFailedDevice(const VolumeId& volume, const Mount& mount);

  Initiator& initiator_;
  Mounter& mounter_;
};

}  // namespace lunkeeper
