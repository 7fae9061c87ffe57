#pragma once
// What a volume may take of its array's speed, on each node that has it. A plain value; nothing fails.

#include <cstdint>
#include <map>

#include "devices/types.h"

namespace lunkeeper {

struct VolumeLimits {
  uint64_t iops = 0;              // requests a second; 0: any number
  uint64_t bytes_per_second = 0;  // 0: any number
  // Rises with each change of the two, so that a late message never undoes a newer one. 0: there never were
  // any.
  uint64_t version = 0;
  friend bool operator==(const VolumeLimits&, const VolumeLimits&) = default;
};

using LimitsByVolume = std::map<VolumeId, VolumeLimits>;

}  // namespace lunkeeper
