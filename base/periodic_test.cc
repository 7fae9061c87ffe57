#include "base/periodic.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/time/clock.h"

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

}  // namespace lunkeeper
