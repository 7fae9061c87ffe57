#pragma once
// This process's own clock. It never goes back, and its times are never compared with another machine's.
// Thread-safe.

#include "absl/time/time.h"
#include "base/executor.h"
#include "fencing/core/time.h"

namespace lunkeeper::fencing {

inline Instant NowOn(const Executor& executor) {
  return Instant(Span::OfMilliseconds(absl::ToInt64Milliseconds(executor.SteadyNow())));
}

inline absl::Duration ToAbsl(Span span) { return absl::Milliseconds(span.milliseconds()); }

}  // namespace lunkeeper::fencing
