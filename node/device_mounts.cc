// A mount and a device belong together when their device numbers are equal. The kernel's mount table is the
// only record of who uses a volume here: no list of our own could be right after a crash, or after somebody
// unmounted by hand.
#include "node/device_mounts.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// A repeated Publish never stacks mounts, so even a few are somebody else's doing; this only bounds the loop.
constexpr int kMostStackedMounts = 16;
constexpr char kBlockStaging[] = "/volumeDevices/staging/";
constexpr char kBlockTargets[] = "/volumeDevices/publish/";

// Where kubelet has a raw device published that it stages there: a folder, with a file for each pod
// (pkg/volume/csi, csi_block.go). Empty: it is no such path.
std::string BlockTargetsBeside(const std::string& staging_path) {
  const std::string staging = kBlockStaging;
  const size_t begin = staging_path.rfind(staging);
  if (begin == std::string::npos) return "";
  return absl::StrCat(staging_path.substr(0, begin), kBlockTargets,
                      staging_path.substr(begin + staging.size()), "/");
}

}  // namespace

absl::Status RefuseVolume(const VolumeId& volume, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat("volume ", volume.value(), ": ", why));
}

const Mount* TopMountAt(const std::vector<Mount>& mounts, const std::string& target) {
  for (auto mount = mounts.rbegin(); mount != mounts.rend(); ++mount) {
    if (mount->target == target) return &*mount;
  }
  return nullptr;
}

std::vector<std::string> ListHolders(const std::string& device, const std::string& sysfs) {
  const std::filesystem::path block = std::filesystem::path(sysfs) / std::filesystem::path(device).filename();
  std::vector<std::string> holders;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(block / "holders", none)) {
    std::string name;  // of a device mapper's device; others have none but the kernel's
    std::getline(std::ifstream(entry.path() / "dm/name"), name);
    holders.push_back(name.empty() ? entry.path().filename().string() : name);
  }
  return holders;
}

absl::StatusOr<std::vector<Mount>> DeviceMounts::ListMountsOf(const Device& device) {
  ASSIGN_OR_RETURN(const dev_t number, mounter_.NumberOf(device.path));
  ASSIGN_OR_RETURN(std::vector<Mount> mounts, mounter_.Mounts());
  std::erase_if(mounts, [number](const Mount& mount) { return mount.device != number; });
  return mounts;
}

// A data path that died frees its loop numbers, and the next volume to be attached may get the same path: a
// Stage in progress would then format that other volume. An open descriptor keeps the number in use.
absl::StatusOr<UniqueFd> DeviceMounts::HoldDevice(const Device& device) {
  UniqueFd held(::open(device.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  // Asked after the open: if the volume has this device now, then it is the device that was opened.
  ASSIGN_OR_RETURN(const std::optional<Device> still, initiator_.Find(device.volume));
  if (held && still && still->path == device.path && still->health != DeviceHealth::kFailed) return held;
  return absl::UnavailableError(absl::StrCat("volume ", device.volume.value(), ": its device ", device.path,
                                             " has gone again (the data path was restarted?); try again"));
}

// Whether the mount is of this volume's device and that device failed for good. A mount of no attached device
// is a leftover, and anybody's to unmount.
absl::StatusOr<bool> DeviceMounts::IsOfFailedDevice(const VolumeId& volume, const Mount& mount) {
  ASSIGN_OR_RETURN(const std::vector<Device> devices, initiator_.List());
  for (const Device& device : devices) {
    const absl::StatusOr<dev_t> number = mounter_.NumberOf(device.path);
    if (!number.ok() || *number != mount.device) continue;
    if (device.volume == volume) return device.health == DeviceHealth::kFailed;
    return RefuseVolume(volume, absl::StrCat("volume ", device.volume.value(), " is mounted at ",
                                             mount.target, "; it is left there"));
  }
  return false;
}

absl::Status DeviceMounts::UnmountAll(const VolumeId& volume, const std::string& target,
                                      absl::Time deadline) {
  for (int round = 0; round < kMostStackedMounts; ++round) {
    ASSIGN_OR_RETURN(const std::vector<Mount> mounts, mounter_.Mounts());
    const Mount* mount = TopMountAt(mounts, target);
    if (mount == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool failed_for_good, IsOfFailedDevice(volume, *mount));
    const absl::Status status = mounter_.Unmount(target, /*lazy=*/false, deadline);
    // A lazy unmount hides the mount and leaves the file system running until its last user ends. That would
    // be wrong for a device that still works, whose grant the next node gets as soon as Unstage returns.
    if (absl::IsFailedPrecondition(status) && failed_for_good) {
      RETURN_IF_ERROR(mounter_.Unmount(target, /*lazy=*/true, deadline));
    } else if (!status.ok()) {
      return status;
    }
  }
  return RefuseVolume(
      volume, absl::StrCat("more than ", kMostStackedMounts, " mounts on top of each other at ", target));
}

absl::StatusOr<std::set<dev_t>> DeviceMounts::ListNumbers() {
  ASSIGN_OR_RETURN(const std::vector<Device> devices, initiator_.List());
  std::set<dev_t> numbers;
  for (const Device& device : devices) {
    const absl::StatusOr<dev_t> number = mounter_.NumberOf(device.path);
    if (number.ok()) numbers.insert(*number);
  }
  return numbers;
}

// Other calls attach and mount, and unmount and detach, meanwhile. So only what is mounted before the devices
// are listed, and still is after that, is taken for unknown.
absl::Status DeviceMounts::CheckKnown(absl::FunctionRef<bool(const Mount&)> counts) {
  ASSIGN_OR_RETURN(std::vector<Mount> mounts, mounter_.Mounts());
  std::erase_if(mounts, [&](const Mount& mount) {
    return !counts(mount) || !initiator_.IsOfAnyDatapath(mount.device);
  });
  if (mounts.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::set<dev_t> known, ListNumbers());
  ASSIGN_OR_RETURN(const std::vector<Mount> after, mounter_.Mounts());
  for (const Mount& mount : mounts) {
    const auto same = [&](const Mount& m) { return m.target == mount.target && m.device == mount.device; };
    if (known.contains(mount.device) || std::none_of(after.begin(), after.end(), same)) continue;
    return absl::FailedPreconditionError(absl::StrCat(mount.target,
                                                      " is mounted from a device of another data path, as "
                                                      "where the socket of that one was removed while it "
                                                      "served: drain the node"));
  }
  return absl::OkStatus();
}

// Only this volume's places count: the node's other volumes can be staged.
absl::Status DeviceMounts::CheckStagingKnown(const std::string& staging_path) {
  const std::string published = BlockTargetsBeside(staging_path);
  return CheckKnown([&](const Mount& mount) {
    return mount.target == staging_path || (!published.empty() && absl::StartsWith(mount.target, published));
  });
}

}  // namespace lunkeeper
