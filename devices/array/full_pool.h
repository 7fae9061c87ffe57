#pragma once
// When a pool counts as full: below this an array makes nothing new, to leave room for thin volumes that are
// in use, and their writes are soon refused.

#include <cstdint>

#include "base/units.h"

namespace lunkeeper {

inline constexpr uint64_t kFullPoolBytes = 16 * kMiB;

}  // namespace lunkeeper
