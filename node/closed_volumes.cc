#include "node/closed_volumes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "absl/time/clock.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLongestWait = absl::Milliseconds(250);
constexpr char kXfs[] = "xfs";

// What an XFS that has shut itself down answers is EIO, which has no code of its own: a child that was killed
// gives the same one. Any other failure says nothing of the file system.
constexpr int kFailuresOfShutDown = 2;
bool MaySayShutDown(const absl::Status& status) { return absl::IsInternal(status); }

absl::Status AskUsage(Filesystem& filesystem, const std::string& mount_point) {
  return filesystem.UsageOf(mount_point, absl::Now() + kLongestWait).status();
}

}  // namespace

bool HasShutDown(const Mount& mount, Filesystem& filesystem) {
  if (mount.type != kXfs) return false;
  int failures = 0;
  while (failures < kFailuresOfShutDown && MaySayShutDown(AskUsage(filesystem, mount.target))) ++failures;
  return failures == kFailuresOfShutDown;
}

std::vector<VolumeId> ClosedVolumes::ListVolumes(const std::vector<Device>& devices) {
  std::vector<VolumeId> closed;
  const auto mounts = mounter_.Mounts();
  if (!mounts.ok()) return closed;
  std::map<dev_t, const Device*> ours;
  std::set<dev_t> healthy;
  for (const Device& device : devices) {
    const auto number = mounter_.NumberOf(device.path);
    if (!number.ok()) continue;
    ours[*number] = &device;
    if (device.health == DeviceHealth::kHealthy) healthy.insert(*number);
  }
  AskNext(*mounts, healthy);
  std::set<dev_t> numbers;
  for (const auto& [number, failures] : failures_)
    if (failures >= kFailuresOfShutDown) numbers.insert(number);
  for (const Mount& mount : *mounts)
    if (!mount.is_node && HasClosedItself(mount)) numbers.insert(mount.device);
  for (const auto& [number, device] : ours)
    if (numbers.contains(number)) closed.push_back(device->volume);
  return closed;
}

// On a device that is not healthy it would wait, and the device's own problem says it all.
void ClosedVolumes::AskNext(const std::vector<Mount>& mounts, const std::set<dev_t>& healthy) {
  std::map<dev_t, std::string> targets;
  for (const Mount& mount : mounts)
    if (!mount.is_node && mount.type == kXfs && healthy.contains(mount.device))
      targets.emplace(mount.device, mount.target);
  std::erase_if(failures_, [&](const auto& entry) { return !targets.contains(entry.first); });
  if (targets.empty()) return;
  auto next = targets.upper_bound(asked_last_);
  if (next == targets.end()) next = targets.begin();
  asked_last_ = next->first;
  const absl::Status status = AskUsage(filesystem_, next->second);
  if (status.ok()) failures_.erase(next->first);
  if (MaySayShutDown(status)) ++failures_[next->first];
}

}  // namespace lunkeeper
