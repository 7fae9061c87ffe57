#pragma once
// This process's own clock. It never goes back, and its times are never compared with another machine's.
// Thread-safe.

#include <chrono>

#include "absl/time/time.h"
#include "fencing/core/time.h"

namespace lunkeeper::fencing {

inline Instant MonotonicNow() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  const auto count = std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
  return Instant(Span::OfMilliseconds(count));
}

inline absl::Duration ToAbsl(Span span) { return absl::Milliseconds(span.milliseconds()); }

}  // namespace lunkeeper::fencing
