// What the queue says to a caller that waits for a copy.
#include "devices/array/tgt/copy_queue.h"

#include <catch2/catch.hpp>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/testing/wall_clock.h"

namespace lunkeeper {

TEST_CASE("the queue says how far a copy is, or how many are before it") {
  absl::Notification halfway, finish;
  CopyQueue queue;
  queue.BeginCopy("first", 8 << 20, [&](const CopyQueue::Progress& progress) {
    progress(3 << 20);
    halfway.Notify();
    finish.WaitForNotification();
    return absl::OkStatus();
  });
  const auto nothing = [](const CopyQueue::Progress&) { return absl::OkStatus(); };
  halfway.WaitForNotification();
  queue.BeginCopy("second", 1 << 20, nothing);
  queue.BeginCopy("third", 1 << 20, nothing);
  CHECK(queue.WaitForCopy("first", absl::InfinitePast()) ==
        absl::AbortedError("first: the copy is under way, at 3 of 8 MiB; try again"));
  CHECK(queue.WaitForCopy("third", absl::InfinitePast()) ==
        absl::AbortedError("third: the copy waits for the one under way and 1 more; try again"));
  finish.Notify();
  for (const char* id : {"first", "second", "third"})
    CHECK(queue.WaitForCopy(id, absl::InfiniteFuture()) == absl::OkStatus());
}

TEST_CASE("a call waits for a copy no longer because the clock was set back") {
  absl::Notification finish;
  CopyQueue queue;
  queue.BeginCopy("copy", 1 << 20, [&](const CopyQueue::Progress&) {
    finish.WaitForNotification();
    return absl::OkStatus();
  });
  const auto wait = [&] {
    CHECK(absl::IsAborted(queue.WaitForCopy("copy", absl::Now() + absl::Milliseconds(20))));
  };
  const bool ended = testing::EndsThoughClockIsSetBack(wait, [&] { finish.Notify(); });
  CHECK(ended);
  if (ended) finish.Notify();
}

}  // namespace lunkeeper
