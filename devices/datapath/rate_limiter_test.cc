#include "devices/datapath/rate_limiter.h"

#include <catch2/catch.hpp>

namespace lunkeeper {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = RateLimiter::Clock;

// A channel with as many requests as it is let have, and a loop that wakes up as late as `late`.
struct Channel {
  SlotLimits limits;
  RateLimiter limiter;
  Clock::time_point now{seconds(1000)};

  Channel(uint64_t iops, uint64_t bytes_per_second) { Set(iops, bytes_per_second); }
  void Set(uint64_t iops, uint64_t bytes_per_second) { limits.SetLimits({iops, bytes_per_second, 1}); }
  uint64_t TakeFor(Clock::duration time, uint64_t bytes, Clock::duration late = milliseconds(1),
                   uint64_t depth = UINT64_MAX) {
    uint64_t taken = 0;
    for (const auto end = now + time; now < end;) {
      REQUIRE(limiter.FollowLimits(limits));
      for (uint64_t i = 0; i < depth && limiter.ready_at() <= now; ++i, ++taken)
        limiter.CountRequest(bytes, now);
      now = std::max(now, limiter.ready_at()) + late;
    }
    return taken;
  }
};

}  // namespace

TEST_CASE("without limits nothing is counted") {
  Channel channel(0, 0);
  CHECK_FALSE(channel.limiter.FollowLimits(channel.limits));
}

TEST_CASE("over time each limit is kept within a percent, however late the loop wakes up") {
  const auto late = GENERATE(milliseconds(1), milliseconds(20), milliseconds(90));
  const uint64_t iops = GENERATE(100, 200, 3000, 30000);
  Channel by_requests(iops, 0);
  by_requests.TakeFor(seconds(1), 4096, late);
  CHECK(by_requests.TakeFor(seconds(100), 4096, late) == Approx(100.0 * iops).epsilon(0.01));
  Channel by_bytes(0, iops * 4096);
  by_bytes.TakeFor(seconds(1), 4096, late);
  CHECK(by_bytes.TakeFor(seconds(100), 4096, late) == Approx(100.0 * iops).epsilon(0.01));
}

TEST_CASE("the stricter of the two limits holds") {
  Channel channel(1000, 4096 * 100);
  channel.TakeFor(seconds(1), 4096);
  CHECK(channel.TakeFor(seconds(100), 4096) == Approx(10000).epsilon(0.01));
  CHECK(channel.TakeFor(seconds(100), 512) == Approx(80000).epsilon(0.01));
  CHECK(channel.TakeFor(seconds(100), 0) == Approx(100000).epsilon(0.01));  // discards
}

TEST_CASE("a request that is larger than what comes in a second is taken, and paid for afterwards") {
  Channel channel(0, 256 << 10);
  CHECK(channel.TakeFor(seconds(1000), 1 << 20) == Approx(250).epsilon(0.01));
}

TEST_CASE("after a rest there is a tenth of a second's worth at once, and no more") {
  Channel channel(1000, 0);
  channel.TakeFor(seconds(1), 4096);
  channel.now += seconds(3600);
  uint64_t at_once = 0;
  for (; channel.limiter.ready_at() <= channel.now; ++at_once) channel.limiter.CountRequest(0, channel.now);
  CHECK(at_once == 101);
}

TEST_CASE("new limits are taken on at once, without the old one's debt") {
  Channel channel(0, 256 << 10);
  REQUIRE(channel.limiter.FollowLimits(channel.limits));
  channel.limiter.CountRequest(1 << 20, channel.now);
  CHECK(channel.limiter.ready_at() > channel.now + seconds(3));
  channel.Set(0, 100 << 20);
  REQUIRE(channel.limiter.FollowLimits(channel.limits));
  CHECK(channel.limiter.ready_at() <= channel.now);
  channel.Set(0, 0);
  CHECK_FALSE(channel.limiter.FollowLimits(channel.limits));
}

TEST_CASE("limits beyond all measure count as none") {
  Channel channel(UINT64_MAX, UINT64_MAX);
  REQUIRE(channel.limiter.FollowLimits(channel.limits));
  for (int i = 0; i < 1000000; ++i) channel.limiter.CountRequest(1 << 20, channel.now);
  CHECK(channel.limiter.ready_at() <= channel.now);
}

}  // namespace lunkeeper
