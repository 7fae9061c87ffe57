// A heartbeat may get lost, or skip a replica that reads slowly, and nobody acknowledges it. So what was
// taken is not crossed out: it loses its precedence alone, and comes again with its turn. A node with 20
// volumes repeats each of them every five seconds, one with 256 every minute.
#include "fencing/agent/detail_rotation.h"

#include <algorithm>
#include <utility>

namespace lunkeeper {
namespace {

// Only a device that waits has its portals asked (path_watch.h), so of a healthy one none counts as lost.
PathState StateOf(const Device& device, bool current, bool lost) {
  if (device.health == DeviceHealth::kFailed) return PathState::kFailed;
  if (device.health == DeviceHealth::kReconnecting && lost) return PathState::kLost;
  if (!current) return PathState::kStandby;
  return device.health == DeviceHealth::kHealthy ? PathState::kConnected : PathState::kReconnecting;
}

}  // namespace

DeviceDetail DescribeDevice(const Device& device, const std::vector<std::string>& mounts,
                            const std::function<bool(const std::string& portal)>& is_lost) {
  DeviceDetail detail{.device = device.path, .paths = {}, .mounts = {}};
  const auto add = [&](const std::string& portal, bool current) {
    if (!portal.empty() && detail.paths.size() < kMostPaths)
      detail.paths.push_back({portal, StateOf(device, current, is_lost(portal))});
  };
  // An older data path does not say which one it uses.
  const std::string& used = device.used_portal.empty() ? device.portal : device.used_portal;
  add(device.portal, device.portal == used);
  for (const std::string& portal : device.other_portals) add(portal, portal == used);
  for (const std::string& mount : mounts)
    if (detail.mounts.size() < kMostMounts && mount.size() <= kLongestDetailText)
      detail.mounts.push_back(mount);
  return detail;
}

void DetailRotation::Update(DeviceDetails details) {
  const absl::MutexLock lock(&mutex_);
  details_ = std::move(details);
  std::erase_if(taken_, [this](const auto& each)
                            ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !details_.contains(each.first); });
}

DeviceDetails DetailRotation::TakeNext(size_t most) {
  const absl::MutexLock lock(&mutex_);
  DeviceDetails next;
  for (const auto& each : details_) {
    const auto taken = taken_.find(each.first);
    if (next.size() < most && (taken == taken_.end() || taken->second != each.second)) next.insert(each);
  }
  // Once around at most, as a node may have fewer than fit. One that goes ahead of its turn, since
  // it changed, keeps its turn all the same.
  auto turn = details_.upper_bound(last_);
  for (size_t looked = 0; looked < details_.size() && next.size() < most; ++looked, ++turn) {
    if (turn == details_.end()) turn = details_.begin();
    next.insert(*turn);
    last_ = turn->first;
  }
  for (const auto& [volume, detail] : next) taken_[volume] = detail;
  return next;
}

}  // namespace lunkeeper
