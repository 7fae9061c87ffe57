// The reasons are part of the interface (docs/orchestrators.md lists them): programs compare them.
// Health is read anew with each question, from three places: the devices (what the data path says), the mount
// table (whether a file system closed itself to writes, and what is missing), and, for a device that failed,
// the node's grants, which tell a fence from a target that was away too long. Nothing here changes anything,
// and what does not answer in two seconds is a problem of its own.
#include "node/volume_health.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "devices/array/arrays.h"
#include "node/closed_volumes.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLongestWait = absl::Seconds(2);

absl::Time Soon(absl::Time deadline) { return std::min(deadline, absl::Now() + kLongestWait); }

// Devices of one array. Failed ones do not count: they have left it for good.
struct ArrayUse {
  int waiting = 0, attached = 0;
};

HealthProblem DescribeSilence(const absl::Status& status) {
  return {false, "DataPathNotAnswering", absl::StrCat("this node's data path: ", status.message())};
}

}  // namespace

std::map<VolumeId, std::vector<std::string>> ListMountTargets(const std::vector<Device>& devices,
                                                              Mounter& mounter) {
  std::map<VolumeId, std::vector<std::string>> targets;
  // A mount knows its block device by number only, and so does the bind of a raw device's node.
  std::map<dev_t, VolumeId> volumes;
  for (const Device& device : devices)
    if (const auto number = mounter.NumberOf(device.path); number.ok()) volumes[*number] = device.volume;
  const auto mounts = mounter.Mounts();
  if (!mounts.ok()) return targets;
  for (const Mount& mount : *mounts)
    if (const auto volume = volumes.find(mount.device); volume != volumes.end())
      targets[volume->second].push_back(mount.target);
  return targets;
}

absl::StatusOr<std::vector<HealthProblem>> VolumeHealth::CheckVolume(const HealthRequest& request) {
  const absl::StatusOr<std::optional<Device>> found = initiator_.Find(request.volume);
  if (!found.ok()) return std::vector{DescribeSilence(found.status())};
  const std::optional<Device>& device = *found;
  if (!device)
    return absl::NotFoundError(
        absl::StrCat("volume ", request.volume.value(), " is not staged on this node"));
  std::vector<HealthProblem> problems;
  if (device->health == DeviceHealth::kFailed) {
    problems.push_back(DescribeFailure(*device, request.deadline));
  } else if (device->health == DeviceHealth::kReconnecting) {
    problems.push_back({true, "Reconnecting",
                        absl::StrCat("I/O waits for the array: ", device->reason,
                                     "; it goes on by itself, or fails for good after a while")});
  }
  RETURN_IF_ERROR(AddMountProblems(request, *device, &problems));
  return problems;
}

HealthProblem VolumeHealth::DescribeFailure(const Device& device, absl::Time deadline) {
  const std::string all_fail =
      absl::StrCat("every I/O fails, and for good: ", device.reason,
                   "; end the pods that use it here, so that it is unstaged and staged again");
  if (device.set_aside) return {false, "SetAside", all_fail};
  if (grants_ == nullptr) return {false, "DeviceFailed", all_fail};
  // By target, which no two grants share.
  const auto held = grants_->Held(device.volume, Soon(deadline));
  const bool ended = held.ok() && std::none_of(held->begin(), held->end(), [&](const HeldGrant& grant) {
                       return grant.target == device.target;
                     });
  return {false, ended ? "Fenced" : "DeviceFailed", all_fail};
}

absl::Status VolumeHealth::AddMountProblems(const HealthRequest& request, const Device& device,
                                            std::vector<HealthProblem>* problems) {
  ASSIGN_OR_RETURN(std::vector<Mount> mounts, device_mounts_.ListMountsOf(device));
  const bool published = request.published.empty() || TopMountAt(mounts, request.published) != nullptr;
  // From here on mounts of the file system alone: a bound device node is a raw volume's publish.
  std::erase_if(mounts, [](const Mount& mount) { return mount.is_node; });
  // A raw block volume is staged without a mount.
  const bool staged =
      request.staged.empty() || mounts.empty() || TopMountAt(mounts, request.staged) != nullptr;
  if (!published || !staged)
    problems->push_back({false, "NotMounted",
                         absl::StrCat("it is attached to this node, but not mounted at ",
                                      published ? request.staged : request.published)});
  if (!mounts.empty()) AddFilesystemProblems(device, mounts, request.deadline, problems);
  return absl::OkStatus();
}

void VolumeHealth::AddFilesystemProblems(const Device& device, const std::vector<Mount>& mounts,
                                         absl::Time deadline, std::vector<HealthProblem>* problems) {
  const auto closed = std::find_if(mounts.begin(), mounts.end(), HasClosedItself);
  if (closed != mounts.end()) {
    problems->push_back(
        {true, "FilesystemReadOnly",
         absl::StrCat("the file system at ", closed->target,
                      " met an error and became read-only; it is checked at its next stage")});
  }
  // Only where the device works: else the statfs may wait for it, and the device's own problem says it all.
  if (device.health != DeviceHealth::kHealthy) return;
  const auto usage = filesystem_.UsageOf(mounts.front().target, Soon(deadline));
  if (usage.ok()) return;
  const bool late = absl::IsDeadlineExceeded(usage.status());
  problems->push_back(
      {late, late ? "FilesystemNotAnswering" : "FilesystemFailed",
       absl::StrCat("the file system at ", mounts.front().target, ": ", usage.status().message())});
}

std::vector<HealthProblem> VolumeHealth::CheckStorage() {
  const auto devices = initiator_.List();
  if (!devices.ok()) return {DescribeSilence(devices.status())};
  std::map<std::string, ArrayUse> arrays;
  for (const Device& device : *devices) {
    if (device.health == DeviceHealth::kFailed) continue;
    ArrayUse& use = arrays[ArrayNameIn(device.volume.value())];
    ++use.attached;
    if (device.health == DeviceHealth::kReconnecting) ++use.waiting;
  }
  std::vector<std::string> away, shaky;
  for (const auto& [name, use] : arrays) {
    if (use.waiting == 0) continue;
    // When only some wait, it is their targets or one of several portals, and not the array.
    (use.waiting == use.attached ? away : shaky)
        .push_back(absl::StrCat(name, " (", use.waiting, " of ", use.attached, " volumes wait)"));
  }
  std::vector<HealthProblem> problems;
  if (!away.empty())
    problems.push_back(
        {false, "ArrayNotAnswering", absl::StrCat("no answer from array ", absl::StrJoin(away, ", "))});
  if (!shaky.empty())
    problems.push_back(
        {true, "ArrayPartlyAnswering", absl::StrCat("volumes wait for array ", absl::StrJoin(shaky, ", "))});
  return problems;
}

}  // namespace lunkeeper
