#pragma once
// How long I/O took, counted in a few buckets. The bounds never change: rates over an upgrade would make no
// sense, and a supervisor may be of another version than its worker.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lunkeeper {

// Upper bounds of the buckets, each its bound included; a last bucket takes what is slower. From an answer
// out of a cache to an array that was away for a while.
inline constexpr std::array<std::chrono::microseconds, 8> kLatencyBounds = {
    std::chrono::microseconds(250), std::chrono::milliseconds(1),  std::chrono::milliseconds(4),
    std::chrono::milliseconds(16),  std::chrono::milliseconds(64), std::chrono::milliseconds(250),
    std::chrono::seconds(1),        std::chrono::seconds(10),
};
inline constexpr size_t kLatencyBuckets = kLatencyBounds.size() + 1;

struct LatencyCounts {
  std::array<uint64_t, kLatencyBuckets> buckets{};  // not cumulative
  uint64_t microseconds = 0;                        // of all together
};

}  // namespace lunkeeper
