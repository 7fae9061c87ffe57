#pragma once
// The number that tgtd knows the target of a grant or a heartbeat LUN by. tgtd numbers with an int, and
// generations count up for as long as the array lives; so after the last number the first one comes again.
// TakeNextGeneration passes over the generations whose number is in use: no two targets ever share one. A
// target's name carries the generation itself, and is never used again.

#include <cstdint>
#include <limits>

#include "devices/types.h"

namespace lunkeeper {

// The highest int is the target that nobody may log in to.
constexpr int32_t kNobodysTarget = std::numeric_limits<int32_t>::max();
constexpr Generation kTargetNumbers = kNobodysTarget - 1;

constexpr int32_t TargetNumber(Generation generation) {
  return static_cast<int32_t>((generation - 1) % kTargetNumbers + 1);
}

}  // namespace lunkeeper
