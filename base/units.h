#pragma once
// Sizes in bytes.

#include <cstdint>

namespace lunkeeper {

constexpr uint64_t kMiB = uint64_t{1} << 20;

}  // namespace lunkeeper
