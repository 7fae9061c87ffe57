#pragma once
// The observer's own clock: never goes back, and is compared with nobody else's. Thread-safe.

#include <chrono>

#include "fencing/core/types.h"

namespace lunkeeper::fencing {

inline Millis MonotonicNow() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

}  // namespace lunkeeper::fencing
