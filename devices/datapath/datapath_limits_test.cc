// Limits of volumes under running I/O: all of it real, as in datapath_test.cc. A limit promises a most, which
// holds on a machine of any speed: these tests count, and compare with the time that has gone by.

#include <signal.h>

#include <catch2/catch.hpp>
#include <memory>

#include "absl/time/clock.h"
#include "base/units.h"
#include "devices/datapath/testing/rig.h"

namespace lunkeeper::testing {
namespace {

constexpr uint64_t kSlow = 20;  // requests a second

uint64_t RequestsOf(Datapath& datapath, const VolumeId& volume) {
  const IoCounters counters = datapath.initiator().Find(volume)->value().counters;
  return counters.reads + counters.writes;
}

// For `time`: no more requests than the limit lets through, some all the same, and health throughout.
void RequireSlow(Datapath& datapath, const VolumeId& volume, absl::Duration time = absl::Seconds(3)) {
  // Requests that were taken before, and answered since.
  const uint64_t before = RequestsOf(datapath, volume);
  const absl::Time began = absl::Now();
  while (absl::Now() < began + time) {
    absl::SleepFor(absl::Milliseconds(100));
    REQUIRE(datapath.initiator().Find(volume)->value().health == DeviceHealth::kHealthy);
  }
  const uint64_t taken = RequestsOf(datapath, volume) - before;
  const double seconds = absl::ToDoubleSeconds(absl::Now() - began);
  CHECK(taken > 0);
  CHECK(static_cast<double>(taken) <= kSlow * (seconds + 0.1) + 8);
}

void RequireFast(Datapath& datapath, const VolumeId& volume) {
  const uint64_t before = RequestsOf(datapath, volume);
  const absl::Time began = absl::Now();
  Eventually("it takes more than the limit let through", [&] {
    return static_cast<double>(RequestsOf(datapath, volume) - before) >
           kSlow * absl::ToDoubleSeconds(absl::Now() - began) + 200;
  });
}

AttachRequest Limited(AttachRequest request, uint64_t version = 1) {
  request.limits = {.iops = kSlow, .bytes_per_second = 0, .version = version};
  return request;
}

struct LimitedLun {
  explicit LimitedLun(std::vector<std::string> options = {}) : datapath(dir, std::move(options)) {
    target.AddLun(1, 64 * kMiB);
    device = MustAttach(datapath, Limited(target.RequestFor(1)));
  }
  absl::Status Set(uint64_t iops, uint64_t version) {
    return datapath.initiator().SetLimits(device.volume,
                                          {.iops = iops, .bytes_per_second = 0, .version = version});
  }
  TempDir dir;
  Target target{dir};
  Datapath datapath;
  Device device;
};

TEST_CASE("a limited volume takes no more than it may, and its neighbour goes on") {
  LimitedLun lun;
  lun.target.AddLun(2, 64 * kMiB);
  const Device neighbour = MustAttach(lun.datapath, lun.target.RequestFor(2));
  FileChecker slow(lun.device.path, 32 * kMiB, 16), fast(neighbour.path, 32 * kMiB, 4);
  RequireSlow(lun.datapath, lun.device.volume);
  RequireFast(lun.datapath, neighbour.volume);
  fast.StopAndCheck();
  REQUIRE(lun.Set(0, 2).ok());
  slow.StopAndCheck();
}

TEST_CASE("a volume's limits change under a writer, and an older message changes nothing") {
  LimitedLun lun;
  FileChecker checker(lun.device.path, 32 * kMiB, 16);
  RequireSlow(lun.datapath, lun.device.volume);
  REQUIRE(lun.Set(0, 3).ok());
  RequireFast(lun.datapath, lun.device.volume);
  REQUIRE(lun.Set(kSlow, 2).ok());
  RequireFast(lun.datapath, lun.device.volume);
  CHECK(lun.datapath.initiator().Find(lun.device.volume)->value().limits ==
        VolumeLimits{.iops = 0, .bytes_per_second = 0, .version = 3});
  REQUIRE(lun.Set(kSlow, 4).ok());
  absl::SleepFor(absl::Seconds(1));  // what was taken before is answered
  RequireSlow(lun.datapath, lun.device.volume);
  REQUIRE(lun.Set(0, 5).ok());
  checker.StopAndCheck();
  CHECK(lun.datapath.initiator().SetLimits(VolumeId("none"), {.iops = 1, .version = 1}).ok());
}

TEST_CASE("a worker that is killed, and a data path that hands over, leave the limits to the next") {
  LimitedLun lun;
  FileChecker checker(lun.device.path, 32 * kMiB, 16);
  REQUIRE(lun.Set(kSlow, 2).ok());
  const pid_t worker = lun.datapath.worker();
  ::kill(worker, SIGKILL);
  lun.datapath.WaitForOtherWorker(worker);
  RequireProgress(checker);
  RequireSlow(lun.datapath, lun.device.volume);
  Datapath successor(lun.dir, {"--take-over"});
  Eventually("the old one ends or waits", [&] { return lun.datapath.Ended() || lun.datapath.worker() == 0; });
  RequireProgress(checker);
  RequireSlow(successor, lun.device.volume);
  CHECK(successor.initiator().Find(lun.device.volume)->value().limits.version == 2);
  REQUIRE(successor.initiator().SetLimits(lun.device.volume, {.version = 3}).ok());
  RequireFast(successor, lun.device.volume);
  checker.StopAndCheck();
  CHECK(successor.initiator().Detach(lun.device.volume).ok());
}

TEST_CASE("a limited volume's flushes succeed, and its target may be away meanwhile") {
  LimitedLun lun;
  const Mounted mounted(lun.device.path, lun.dir / "mnt");
  for (int i = 0; i < 3; ++i) {
    if (i == 1) lun.target.Kill();
    if (i == 1) lun.target.Start();
    CHECK(Run({"dd", "if=/dev/zero", "of=" + mounted.path() + "/file", "bs=64k", "count=8", "conv=fsync"})
              .exit_code == 0);
  }
  const Device device = lun.datapath.initiator().Find(lun.device.volume)->value();
  CHECK(device.counters.errors == 0);
  CHECK(device.counters.flushes > 0);
}

TEST_CASE("all I/O of a limited volume that is failed ends at once") {
  LimitedLun lun;
  REQUIRE(lun.Set(1, 2).ok());
  FileChecker checker(lun.device.path, 32 * kMiB, 64);
  absl::SleepFor(absl::Seconds(1));
  REQUIRE(lun.datapath.initiator().Fail(lun.device.volume, lun.device.target, "fenced").ok());
  // At one a second it would take a minute.
  Eventually("every writer has its error", [&] { return checker.errors() >= 64; });
}

TEST_CASE("an attach that is repeated brings newer limits") {
  LimitedLun lun;
  CHECK(MustAttach(lun.datapath, Limited(lun.target.RequestFor(1), 7)).limits.version == 7);
  CHECK(MustAttach(lun.datapath, Limited(lun.target.RequestFor(1), 5)).limits.version == 7);
}

}  // namespace
}  // namespace lunkeeper::testing
