// What calls wait for, without a worker.
#include "devices/datapath/supervised_volumes.h"

#include <sys/eventfd.h>

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "base/testing/wall_clock.h"

namespace lunkeeper {

TEST_CASE("calls to the data path give up in time although the clock was set back") {
  const UniqueFd answers(::eventfd(0, EFD_CLOEXEC));
  SupervisedVolumes volumes({}, {.memory = *SharedMemory::Create(), .volumes = {}}, answers.get(), "none-",
                            "");
  datapath::Attach options;
  options.set_volume("v");
  const SupervisedVolume& volume = **volumes.InsertVolume(options);  // in another call from now on
  const auto soon = [] { return absl::Now() + absl::Milliseconds(20); };
  const bool ended = testing::EndsThoughClockIsSetBack(
      [&] {
        CHECK(absl::IsDeadlineExceeded(volumes.BeginCall(volume.id, soon()).status()));
        CHECK(absl::IsDeadlineExceeded(volumes.AwaitLogin(volume, soon())));
        CHECK(volumes.AwaitTarget(volume, soon()) == TargetCondition::kAway);
        CHECK(absl::IsDeadlineExceeded(volumes.AskWorker(volume, {}, soon()).status()));
      },
      [&] { volumes.EndAll(); });
  CHECK(ended);
}

}  // namespace lunkeeper
