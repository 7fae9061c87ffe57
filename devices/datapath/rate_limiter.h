#pragma once
// The limits of one volume, as two token buckets: how many requests and how many bytes its channel may take
// from the kernel in a second. What may not be taken yet waits in the kernel, and holds no memory of ours.
//
// A bucket holds what comes in a tenth of a second, so that a loop which wakes up late loses nothing. A
// request is taken when there is any token at all, and may leave a debt: its size shows only once it is read.
// So over time both limits are kept exactly, and no request is too large for a small limit.
//
// One thread; nothing allocates, locks or fails.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "devices/datapath/shared_state.h"

namespace lunkeeper {

// By the time until which what was taken is paid for: a token every 1/rate seconds (a "leaky bucket as a
// meter", ITU-T I.371, annex A).
class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;

  // 0: no limit.
  void SetRate(uint64_t per_second) {
    if (per_second == rate_) return;
    rate_ = per_second;
    paid_until_ = {};  // debts were of another rate
  }
  // In the past: now.
  Clock::time_point ready_at() const { return rate_ == 0 ? Clock::time_point() : paid_until_; }
  void SpendTokens(uint64_t tokens, Clock::time_point now) {
    if (rate_ == 0) return;
    // A request has at most 1 MiB: the product has room.
    const auto cost = std::chrono::nanoseconds(tokens * 1'000'000'000 / rate_);
    paid_until_ = std::max(paid_until_, now - kDepth) + cost;
  }

 private:
  static constexpr auto kDepth = std::chrono::milliseconds(100);
  uint64_t rate_ = 0;
  Clock::time_point paid_until_;
};

class RateLimiter {
 public:
  using Clock = TokenBucket::Clock;

  // Takes on the limits as they are now. False: there are none, and no other call is needed.
  bool FollowLimits(const SlotLimits& limits) {
    const uint64_t iops = limits.iops.load(std::memory_order_relaxed);
    const uint64_t bytes_per_second = limits.bytes_per_second.load(std::memory_order_relaxed);
    if ((iops | bytes_per_second) == 0) [[likely]]
      return false;
    requests_.SetRate(iops);
    bytes_.SetRate(bytes_per_second);
    return true;
  }
  // When the next request may be taken; in the past: now.
  Clock::time_point ready_at() const { return std::max(requests_.ready_at(), bytes_.ready_at()); }
  void CountRequest(uint64_t bytes, Clock::time_point now) {
    requests_.SpendTokens(1, now);
    bytes_.SpendTokens(bytes, now);
  }

 private:
  TokenBucket requests_, bytes_;
};

}  // namespace lunkeeper
