#include "base/steady_mutex.h"

#include <catch2/catch.hpp>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "base/testing/wall_clock.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(20), kLong = absl::Seconds(30);

// Something that comes, or does not.
class Parcel {
 public:
  bool AwaitArrival(absl::Duration within) {
    const SteadyLock lock(&mutex_);
    return mutex_.AwaitUntil(absl::Condition(&arrived_), SteadyDeadline(within));
  }
  void Deliver() {
    const SteadyLock lock(&mutex_);
    arrived_ = true;
  }

 private:
  SteadyMutex mutex_;
  bool arrived_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

TEST_CASE("who waits for what comes has it at once, and waits no longer than said for what does not") {
  Parcel parcel;
  CHECK_FALSE(parcel.AwaitArrival(-absl::InfiniteDuration()));
  CHECK_FALSE(parcel.AwaitArrival(kShort));
  std::thread postman([&] { parcel.Deliver(); });
  CHECK(parcel.AwaitArrival(absl::InfiniteDuration()));
  postman.join();
  CHECK(parcel.AwaitArrival(absl::ZeroDuration()));
}

TEST_CASE("a clock that is set back prolongs no wait") {
  Parcel parcel;
  const bool ended = testing::EndsThoughClockIsSetBack([&] { CHECK_FALSE(parcel.AwaitArrival(kShort)); },
                                                       [&] { parcel.Deliver(); });
  CHECK(ended);
}

TEST_CASE("a clock that is set forward ends no wait") {
  Parcel parcel;
  std::optional<testing::WallClockAhead> behind(-absl::Hours(1));
  testing::AwaitAbseilsClock();
  std::thread postman([&] {
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kShort));
    parcel.Deliver();
  });
  CHECK(parcel.AwaitArrival(kLong));
  postman.join();
  behind.reset();
  testing::AwaitAbseilsClock();
}

// Each wakes only if the change that the other one made before its own wait is seen.
TEST_CASE("two that wait for each other in turn both go on") {
  SteadyMutex mutex;
  int turn = 0;
  const auto play = [&](int own) {
    const SteadyLock lock(&mutex);
    for (int i = 0; i < 1000; ++i) {
      const auto is_own = [&] { return turn == own; };
      if (!mutex.AwaitUntil(absl::Condition(&is_own), SteadyDeadline(kLong))) return false;
      turn = 1 - own;
    }
    return true;
  };
  auto other = std::async(std::launch::async, play, 1);
  CHECK(play(0));
  CHECK(other.get());
}

// Waiters come and go while others are woken; the last piece is gone before its mutex is.
TEST_CASE("many take pieces one by one, and none is lost or taken twice") {
  constexpr int kThreads = 8, kPieces = 2000;
  SteadyMutex mutex;
  int there = 0, taken = 0;
  const auto take = [&] {
    const SteadyLock lock(&mutex);
    const auto is_there = [&] { return there > 0; };
    while (taken < kPieces) {
      if (!mutex.AwaitUntil(absl::Condition(&is_there), SteadyDeadline(absl::Microseconds(50)))) continue;
      --there;
      ++taken;
    }
  };
  std::vector<std::jthread> takers(kThreads);
  for (std::jthread& taker : takers) taker = std::jthread(take);
  for (int i = 0; i < kPieces; ++i) {
    const SteadyLock lock(&mutex);
    ++there;
  }
  takers.clear();
  CHECK(taken == kPieces);
  CHECK(there == 0);
}

}  // namespace lunkeeper
