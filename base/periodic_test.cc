#include "base/periodic.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/time/clock.h"
#include "base/testing/wall_clock.h"

namespace lunkeeper {
namespace {

bool Reaches(const std::atomic<int>& count, int wanted) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (count < wanted && absl::Now() < deadline) std::this_thread::yield();
  return count >= wanted;
}

}  // namespace

TEST_CASE("work is repeated until its owner goes") {
  std::atomic<int> runs = 0;
  {
    const Periodic periodic(absl::Milliseconds(1), [&] { ++runs; });
    CHECK(Reaches(runs, 3));
  }
  const int last = runs;
  std::this_thread::yield();
  CHECK(runs == last);
}

TEST_CASE("waking runs the work before its time, and going does not wait for it") {
  std::atomic<int> runs = 0;
  const absl::Time began = absl::Now();
  {
    Periodic periodic(absl::Hours(1), [&] { ++runs; });
    CHECK(Reaches(runs, 1));
    periodic.Wake();
    CHECK(Reaches(runs, 2));
  }
  CHECK(absl::Now() - began < absl::Minutes(1));
}

TEST_CASE("a first run that is to wait comes later, or not at all if its owner goes") {
  std::atomic<int> runs = 0;
  const absl::Time began = absl::Now();
  {
    const Periodic periodic(
        absl::Milliseconds(1), [&] { ++runs; }, RealExecutor(), absl::Milliseconds(20));
    CHECK(Reaches(runs, 2));
    CHECK(absl::Now() - began >= absl::Milliseconds(20));
  }
  runs = 0;
  {
    const Periodic periodic(
        absl::Hours(1), [&] { ++runs; }, RealExecutor(), absl::Hours(1));
  }
  CHECK(runs == 0);
  CHECK(absl::Now() - began < absl::Minutes(1));
}

// The owner's going would wait for the hour, too.
TEST_CASE("work is repeated although the clock is set back by an hour") {
  std::atomic<int> runs = 0;
  auto* const periodic = new Periodic(absl::Milliseconds(1), [&] {
    if (++runs < 1000) std::this_thread::yield();
  });
  bool repeated = false;
  {
    const testing::WallClockAhead ahead(absl::Hours(1));
    repeated = Reaches(runs, runs + 100);
  }
  REQUIRE(repeated);
  delete periodic;
}

}  // namespace lunkeeper
