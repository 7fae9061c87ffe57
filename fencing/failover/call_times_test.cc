#include "fencing/failover/call_times.h"

#include <catch2/catch.hpp>

namespace lunkeeper::fencing {

TEST_CASE("only a call that timed out again and again gets more time, and only while it is repeated") {
  const auto late = absl::DeadlineExceededError("late");
  const auto times = [](const CallTimes& of, const char* call) {
    return absl::ToInt64Seconds(of.TimeFor(call));
  };
  CallTimes calls(absl::Seconds(3));
  CHECK(times(calls, "put n1") == 3);
  for (const int expected : {6, 12, 24, 24}) {
    calls.NoteAnswer("put n1", late, absl::Seconds(3), Instant(100_s));
    CHECK(times(calls, "put n1") == expected);
  }
  CHECK(times(calls, "put n2") == 3);
  calls.NoteAnswer("put n2", late, absl::Seconds(3), Instant(130_s));
  calls.NoteAnswer("put n2", absl::OkStatus(), absl::Seconds(5), Instant(135_s));
  CHECK(times(calls, "put n2") == 6);  // it needed more than the first time
  calls.NoteAnswer("put n2", absl::AbortedError("no"), absl::Seconds(1), Instant(136_s));
  CHECK(times(calls, "put n2") == 3);
  CHECK(times(calls, "put n1") == 24);
  // A thousand deletions that are held for 24 s, 64 at once, take six minutes.
  calls.NoteAnswer("put n2", late, absl::Seconds(3), Instant(500_s));
  CHECK(times(calls, "put n1") == 24);
  calls.NoteAnswer("put n2", late, absl::Seconds(3), Instant(3700_s));
  CHECK(times(calls, "put n1") == 3);
}

}  // namespace lunkeeper::fencing
