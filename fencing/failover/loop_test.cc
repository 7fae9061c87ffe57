#include "fencing/failover/loop.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/testing/wall_clock.h"

namespace lunkeeper::fencing {
namespace {

constexpr Span kHour = 3600_s;
constexpr absl::Duration kLong = absl::Seconds(30), kShort = absl::Milliseconds(100);

// What was done, in order.
class NodeTimeline {
 public:
  Loop::Job Tells(const std::string& what) {
    return [this, what](Instant) {
      std::lock_guard lock(mutex_);
      text_ += what;
    };
  }
  std::string text() {
    std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

}  // namespace

TEST_CASE("a job that may wait is done before the tick that comes next, at the time of its arrival") {
  NodeTimeline timeline;
  absl::Notification ticked;
  Instant arrived;
  Loop loop;
  loop.PostJob([&](Instant now) { arrived = now; }, Wake::kLater);
  loop.PostJob(timeline.Tells("a"), Wake::kLater);
  const Instant posted = NowOn(RealExecutor());
  absl::SleepFor(kShort);
  loop.Start(kHour, [&](Instant now) {
    timeline.Tells("t")(now);
    ticked.Notify();
  });
  REQUIRE(ticked.WaitForNotificationWithTimeout(kLong));
  CHECK(timeline.text() == "at");
  CHECK(arrived <= posted);
}

TEST_CASE("what a job holds is freed once it has run, before the next one runs") {
  absl::Notification done;
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  std::atomic<bool> freed = false;
  Loop loop;
  loop.PostJob([held = std::move(held)](Instant) {}, Wake::kLater);
  loop.PostJob([&](Instant) { freed = watched.expired(); }, Wake::kLater);
  loop.Start(kHour, [&](Instant) { done.Notify(); });
  REQUIRE(done.WaitForNotificationWithTimeout(kLong));
  CHECK(freed);
}

TEST_CASE("jobs that may wait do not wake the loop, and go before one that does") {
  NodeTimeline timeline;
  absl::Notification ticked, done;
  Loop loop;
  loop.Start(kHour, [&](Instant) { ticked.Notify(); });
  REQUIRE(ticked.WaitForNotificationWithTimeout(kLong));
  loop.PostJob(timeline.Tells("a"), Wake::kLater);
  loop.PostJob(timeline.Tells("b"), Wake::kLater);
  absl::SleepFor(kShort);
  CHECK(timeline.text().empty());
  loop.PostJob(timeline.Tells("c"));
  loop.PostJob([&](Instant) { done.Notify(); });
  REQUIRE(done.WaitForNotificationWithTimeout(kLong));
  CHECK(timeline.text() == "abc");
}

TEST_CASE("many jobs that may wait wake the loop together") {
  absl::Notification ticked, done;
  Loop loop;
  loop.Start(kHour, [&](Instant) { ticked.Notify(); });
  REQUIRE(ticked.WaitForNotificationWithTimeout(kLong));
  loop.PostJob([&](Instant) { done.Notify(); }, Wake::kLater);
  for (int i = 0; i < 1000; ++i) loop.PostJob([](Instant) {}, Wake::kLater);
  CHECK(done.WaitForNotificationWithTimeout(kLong));
}

TEST_CASE("ticks go on although the clock is set back by an hour") {
  std::atomic<int> ticks = 0;
  Loop loop;
  const testing::WallClockAhead ahead(absl::Hours(1));
  loop.Start(1_ms, [&](Instant) { ++ticks; });
  const Instant deadline = NowOn(RealExecutor()) + 30_s;
  while (ticks < 100 && NowOn(RealExecutor()) < deadline) std::this_thread::yield();
  loop.PostJob([](Instant) {});  // which ends a wait that takes the hour
  CHECK(ticks >= 100);
}

}  // namespace lunkeeper::fencing
