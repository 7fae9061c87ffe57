#pragma once
// Counters of one Lun in shared memory. One thread counts and others, perhaps in other processes, read at any
// time, so counting takes neither a lock nor a locked instruction.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "devices/latency.h"

namespace lunkeeper {

// By the one thread that writes `counter`.
inline void Count(std::atomic<uint64_t>& counter, uint64_t more = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

struct LatencyCounters {
  std::atomic<uint64_t> buckets[kLatencyBuckets];
  std::atomic<uint64_t> microseconds;

  void CountDuration(std::chrono::steady_clock::duration took) {
    took = std::max(took, took.zero());
    size_t bucket = 0;
    while (bucket < kLatencyBounds.size() && took > kLatencyBounds[bucket]) ++bucket;
    Count(buckets[bucket]);
    Count(microseconds,
          static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
  }
  LatencyCounts Counts() const {
    LatencyCounts counts{.microseconds = microseconds};
    for (size_t i = 0; i < kLatencyBuckets; ++i) counts.buckets[i] = buckets[i];
    return counts;
  }
};

}  // namespace lunkeeper
