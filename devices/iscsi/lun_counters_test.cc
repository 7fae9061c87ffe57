// What a Lun counts, for metrics.

#include <numeric>

#include "absl/time/clock.h"
#include "devices/iscsi/testing/lun_rig.h"

namespace lunkeeper {
namespace {

uint64_t Total(const LatencyCounters& counters) {
  const LatencyCounts counts = counters.Counts();
  return std::accumulate(counts.buckets.begin(), counts.buckets.end(), uint64_t{0});
}

TEST_CASE("a duration is counted where its bound is, a bound in its own bucket") {
  LatencyCounters counters{};
  counters.CountDuration(milliseconds(0));
  counters.CountDuration(std::chrono::microseconds(250));
  counters.CountDuration(std::chrono::microseconds(251));
  counters.CountDuration(seconds(10));
  counters.CountDuration(seconds(11));
  const LatencyCounts counts = counters.Counts();
  CHECK(counts.buckets == std::array<uint64_t, kLatencyBuckets>{2, 1, 0, 0, 0, 0, 0, 1, 1});
  CHECK(counts.microseconds == 21'000'501);
}

TEST_CASE("each kind of I/O has a latency, and a refused request has none") {
  LunRig rig;
  rig.Start();
  for (int i = 0; i < 3; ++i) REQUIRE(rig.Write(0, 'x') == 0);
  TestRequest read(LunOp::kRead);
  REQUIRE(rig.Do(read) == 0);
  REQUIRE(rig.Flush() == 0);
  TestRequest beyond(LunOp::kRead, 8192 * 512);
  REQUIRE(rig.Do(beyond) == EINVAL);
  CHECK(Total(rig.state.write_latency) == 3);
  CHECK(Total(rig.state.read_latency) == 1);
  CHECK(Total(rig.state.flush_latency) == 1);
  CHECK(rig.state.errors == 1);
}

// What a pod waits for, not what the last attempt took.
TEST_CASE("waiting for a target that was away is in the latency of what waited") {
  LunRig rig;
  rig.Start();
  const auto begun = Lun::Clock::now();
  rig.target.Change(
      [](auto& traits) { traits.script = Once(kWrite, iscsi::Reaction{iscsi::Reaction::kDrop}); });
  REQUIRE(rig.Write(0, 'x') == 0);  // after a back-off of at least 100 ms
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Lun::Clock::now() - begun);
  CHECK(Total(rig.state.write_latency) == 1);
  CHECK(rig.state.write_latency.microseconds >= 100'000);
  CHECK(rig.state.write_latency.microseconds <= static_cast<uint64_t>(took.count()));
}

TEST_CASE("the first login is remembered, however often the connection is made anew") {
  LunRig rig;
  const int64_t before = absl::ToUnixSeconds(absl::Now());
  rig.Start();
  const int64_t first = rig.state.first_login;
  CHECK(first >= before);
  CHECK(first <= absl::ToUnixSeconds(absl::Now()));
  rig.state.first_login = first - 1000;
  rig.CutAndWait();
  CHECK(rig.state.logins == 2);
  CHECK(rig.state.first_login == first - 1000);
}

}  // namespace
}  // namespace lunkeeper
