#include "fencing/agent/removed_arrays.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "devices/array/arrays.h"

namespace lunkeeper {

bool RemovedArrays::NoteNamed(const std::set<std::string>& names) {
  absl::MutexLock lock(&mutex_);
  named_.insert(names.begin(), names.end());
  return !std::includes(enforced_.begin(), enforced_.end(), names.begin(), names.end());
}

void RemovedArrays::EndIo(const std::vector<Device>& devices, const Fail& fail) {
  std::set<std::string> named;
  {
    absl::MutexLock lock(&mutex_);
    named = std::exchange(named_, {});
    enforced_ = named;
  }
  if (named.empty()) return;
  for (const Device& device : devices) {
    const std::string array = ArrayNameIn(device.volume.value());
    if (device.health == DeviceHealth::kFailed || !named.contains(array)) continue;
    const absl::Status failed = fail(device, absl::StrCat("array ", array, " was removed by an operator"));
    if (failed.ok()) {
      LogWarn("agent", "the I/O of a volume is ended: its array was removed",
              {{"volume", device.volume.value()}, {"device", device.path}});
    } else {
      LogWarn("agent", "the I/O of a volume on a removed array could not be ended; trying again",
              {{"volume", device.volume.value()}, {"error", std::string(failed.message())}});
    }
  }
}

}  // namespace lunkeeper
