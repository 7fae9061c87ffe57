#include "devices/datapath/limit_setter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace lunkeeper {

// A replica that has lost sight of an array goes on reporting what it saw last: the highest version counts.
bool LimitSetter::Report(const LimitsByVolume& limits) {
  const absl::MutexLock lock(&mutex_);
  bool news = false;
  for (const auto& [volume, reported] : limits) {
    VolumeLimits& known = known_[volume];
    if (known.version >= reported.version) continue;
    known = reported;
    news = true;
  }
  return news;
}

void LimitSetter::Apply(const std::vector<Device>& devices) {
  std::vector<std::pair<const Device*, VolumeLimits>> behind;
  {
    const absl::MutexLock lock(&mutex_);
    // What no device has is forgotten, so that this does not grow with each volume that was ever here.
    LimitsByVolume still;
    for (const Device& device : devices) {
      const auto known = known_.find(device.volume);
      if (known == known_.end()) continue;
      still.insert(*known);
      if (known->second.version > device.limits.version) behind.emplace_back(&device, known->second);
    }
    known_ = std::move(still);
  }
  if (!set_) return;
  for (const auto& [device, limits] : behind) {
    const absl::Status set = SetLimits(*device, limits);
    // It would take the timeout of a call for each volume, on a thread that has other work.
    if (absl::IsUnavailable(set) || absl::IsDeadlineExceeded(set)) return;
  }
}

absl::Status LimitSetter::SetLimits(const Device& device, const VolumeLimits& limits) {
  absl::Status set = set_(device.volume, limits);
  std::string trouble(set.message());
  const bool same = trouble == trouble_;
  trouble_ = std::move(trouble);
  if (!set.ok() && same) return set;
  const std::string iops = absl::StrCat(limits.iops), bandwidth = absl::StrCat(limits.bytes_per_second);
  if (set.ok()) {
    LogInfo("node", "a volume has other limits",
            {{"volume", device.volume.value()}, {"max_iops", iops}, {"max_bandwidth", bandwidth}});
  } else {
    LogWarn("node", "a volume's limits cannot be set yet",
            {{"volume", device.volume.value()}, {"error", trouble_}});
  }
  return set;
}

}  // namespace lunkeeper
