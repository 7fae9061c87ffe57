// One data path after another, under running I/O: all of it real, as in datapath_test.cc.

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/units.h"
#include "devices/datapath/hand_over.h"
#include "devices/datapath/testing/rig.h"
#include "devices/datapath/user_initiator.h"

namespace lunkeeper::testing {
namespace {

const std::vector<std::string> kTakeOver = {"--take-over"};

std::vector<std::string> DyingAt(const std::string& point) {
  return {"env", "LUNKEEPER_FAIL_POINT=" + point};
}

Device WithStatistics(const Datapath& datapath, const VolumeId& volume) {
  const auto devices = ListServedDevices(datapath.socket(), absl::Seconds(10), /*statistics=*/true);
  REQUIRE(devices.ok());
  const auto at = std::find_if(devices->begin(), devices->end(),
                               [&](const Device& device) { return device.volume == volume; });
  REQUIRE(at != devices->end());
  return *at;
}

uint64_t TotalOf(const LatencyCounts& counts) {
  return std::accumulate(counts.buckets.begin(), counts.buckets.end(), uint64_t{0});
}

TEST_CASE("a successor takes the volumes over under a writer, again and again") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 256 * kMiB);
  target.AddLun(2, 64 * kMiB);
  target.AddLun(3, 64 * kMiB);
  auto datapath = std::make_unique<Datapath>(dir);
  const Device device = MustAttach(*datapath, target.RequestFor(1));
  const Device fenced = MustAttach(*datapath, target.RequestFor(2));
  REQUIRE(datapath->initiator().Fail(fenced.volume, fenced.target, "fenced").ok());
  Mounted mounted(device.path, dir / "mnt");
  const absl::Time attached = WithStatistics(*datapath, device.volume).statistics.attached;
  CHECK(absl::Now() - attached < absl::Minutes(5));
  FileChecker checker(mounted.path() + "/file", 32 * kMiB, 16);
  for (int round = 0; round < 5; ++round) {
    RequireProgress(checker);
    auto successor = std::make_unique<Datapath>(dir, kTakeOver);
    INFO(successor->log());
    REQUIRE_FALSE(successor->Ended());  // it gave up, and the one before it serves on
    Eventually("the old one ends or waits", [&] { return datapath->Ended() || datapath->worker() == 0; });
    datapath = std::move(successor);
  }
  RequireProgress(checker);
  CHECK(datapath->initiator().List()->size() == 2);
  CHECK(datapath->initiator().Find(device.volume)->value().health == DeviceHealth::kHealthy);
  CHECK(datapath->initiator().Find(device.volume)->value().counters.writes > 500);
  CHECK(datapath->initiator().Find(fenced.volume)->value().reason == "fenced");
  checker.StopAndCheck();
  Device counted;
  Eventually("nothing is written any more, and each write was counted once", [&] {
    counted = WithStatistics(*datapath, device.volume);
    return TotalOf(counted.statistics.writes) == counted.counters.writes;
  });
  CHECK(counted.statistics.writes.microseconds > 0);
  CHECK(counted.statistics.reconnects >= 5);
  CHECK(counted.statistics.attached == attached);
  MustAttach(*datapath, target.RequestFor(3));
  target.Grow(1, 512 * kMiB);
  CHECK(datapath->initiator().Resize(device.volume)->size_bytes == 512 * kMiB);
  mounted.Unmount();
  for (int number : {1, 2, 3}) {
    CHECK(datapath->initiator().Detach(target.RequestFor(number).volume).ok());
  }
  CHECK(datapath->initiator().List()->empty());
}

TEST_CASE("whoever of the two dies at whatever step of a hand-over, the other one serves") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  int tried = 0;
  for (const std::string& point : FailPointNames()) {
    if (point.rfind("handover.", 0) != 0) continue;
    INFO(point);
    const bool predecessor_dies = point.rfind("handover.predecessor.", 0) == 0;
    Datapath datapath(dir, {}, predecessor_dies ? DyingAt(point) : std::vector<std::string>{});
    const Device device = MustAttach(datapath, target.RequestFor(1));
    FileChecker checker(device.path, 32 * kMiB, 8);
    RequireProgress(checker);
    Datapath successor(dir, kTakeOver, predecessor_dies ? std::vector<std::string>{} : DyingAt(point));
    RequireProgress(checker);
    CHECK(datapath.Ended() == predecessor_dies);
    CHECK(successor.Ended() != predecessor_dies);
    Initiator& initiator = (predecessor_dies ? successor : datapath).initiator();
    Eventually("it is healthy",
               [&] { return initiator.Find(device.volume)->value().health == DeviceHealth::kHealthy; });
    RequireProgress(checker);
    checker.StopAndCheck();
    CHECK(initiator.Detach(device.volume).ok());
    ++tried;
  }
  CHECK(tried == 6);
}

TEST_CASE("a successor that stands still before it serves is named in the log, and its end is the way out") {
  AttachedLun rig(64 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  FileChecker checker(device.path, 32 * kMiB, 4);
  RequireProgress(checker);
  const std::string stop = dir / "stop";
  std::ofstream(stop) << "#!/bin/sh\nkill -STOP $PPID\n";
  std::filesystem::permissions(stop, std::filesystem::perms::owner_all);
  const pid_t successor =
      Spawn({"env", "LUNKEEPER_FAIL_POINT=handover.successor.given:exec=" + stop, LK_DATAPATH_BINARY,
             "datapath", "--take-over", "--socket=" + datapath.socket()},
            dir / "log");
  CHECK(Eventually(
      [&] { return datapath.log().find(absl::StrCat("successor=", successor)) != std::string::npos; },
      absl::Seconds(30)));
  ::kill(successor, SIGKILL);
  ::waitpid(successor, nullptr, 0);
  RequireProgress(checker);
  checker.StopAndCheck();
}

TEST_CASE("calls during a hand-over are answered, by the one or the other") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  target.AddLun(2, 64 * kMiB);
  auto datapath = std::make_unique<Datapath>(dir);
  const Device device = MustAttach(*datapath, target.RequestFor(1));
  const auto initiator = MakeUserInitiator(datapath->socket(), absl::Seconds(30));
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0}, lists{0};
  std::vector<std::string> failed;
  std::thread caller([&] {
    for (; !stop && failed.empty(); ++rounds) {
      const auto attached = initiator->Attach(target.RequestFor(2));
      if (!attached.ok()) failed.push_back(attached.status().ToString());
      const absl::Status detached = initiator->Detach(target.RequestFor(2).volume);
      if (!detached.ok()) failed.push_back(detached.ToString());
    }
  });
  std::thread lister([&] {
    for (; !stop; ++lists) {
      if (!initiator->List().ok()) break;
    }
  });
  for (int round = 0; round < 5; ++round) {
    const int before = rounds;
    const int lists_before = lists;
    Eventually("calls go on", [&] { return !failed.empty() || rounds > before + 1; });
    auto successor = std::make_unique<Datapath>(dir, kTakeOver);
    datapath = std::move(successor);
    Eventually("lists go on", [&] { return lists > lists_before + 5; });
  }
  stop = true;
  caller.join();
  lister.join();
  CHECK(failed == std::vector<std::string>{});
  CHECK(datapath->initiator().Find(device.volume)->value().health == DeviceHealth::kHealthy);
}

TEST_CASE("a login that takes long holds up no hand-over, and its caller is asked to come again") {
  TempDir dir;
  TempDir elsewhere;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Target silent(elsewhere);
  silent.AddLun(2, 64 * kMiB);
  Datapath datapath(dir);
  MustAttach(datapath, target.RequestFor(1));
  ::kill(silent.pid(), SIGSTOP);
  absl::Status attached;
  std::thread caller([&] { attached = datapath.initiator().Attach(silent.RequestFor(2)).status(); });
  const std::string portal = silent.RequestFor(2).connection.portal;
  Eventually("it logs in", [&] { return !Run({"ss", "-Htn", "dst", portal}).output.empty(); });
  Datapath successor(dir, kTakeOver);
  caller.join();
  CHECK(attached.code() == absl::StatusCode::kUnavailable);
  CHECK(datapath.WaitForExit() == 0);
  ::kill(silent.pid(), SIGCONT);
  CHECK(MustAttach(successor, silent.RequestFor(2)).health == DeviceHealth::kHealthy);
  CHECK(successor.initiator().List()->size() == 2);
}

TEST_CASE("where the kernel cannot hand requests on, a successor waits until the volumes are detached") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir, {"--no-resend"});
  const Device device = MustAttach(datapath, target.RequestFor(1));
  FileChecker checker(device.path, 32 * kMiB, 4);
  const pid_t successor =
      Spawn({LK_DATAPATH_BINARY, "datapath", "--take-over", "--socket=" + datapath.socket()}, dir / "log");
  Eventually("it says why", [&] {
    return Run({"grep", "-q", "waits for the data path that is here.*kernels before 6.9", dir / "log"})
               .exit_code == 0;
  });
  RequireProgress(checker);
  checker.StopAndCheck();
  CHECK(datapath.initiator().Detach(device.volume).ok());
  Eventually("it serves", [&] { return datapath.Ended(); });
  CHECK(MustAttach(datapath, target.RequestFor(1)).health == DeviceHealth::kHealthy);
  KillAndWait(successor);
}

TEST_CASE("a data path that is told to stop serves on, until a successor has its volumes") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir, {"--ready-file=" + dir / "ready1"});
  const Device device = MustAttach(datapath, target.RequestFor(1));
  FileChecker checker(device.path, 32 * kMiB, 4);
  ::kill(datapath.pid(), SIGTERM);
  Eventually("it says so", [&] { return datapath.log().find("serves on until") != std::string::npos; });
  // A runtime that is started again meanwhile tells it again.
  ::kill(datapath.pid(), SIGTERM);
  RequireProgress(checker);
  CHECK(std::filesystem::exists(dir / "ready1"));
  Datapath successor(dir, {"--take-over", "--ready-file=" + dir / "ready2"});
  CHECK(datapath.WaitForExit() == 0);
  CHECK_FALSE(std::filesystem::exists(dir / "ready1"));
  CHECK(Run({LK_DATAPATH_BINARY, "datapath", "ready", "--ready-file=" + dir / "ready2"}).exit_code == 0);
  CHECK(Run({LK_DATAPATH_BINARY, "datapath", "ready", "--ready-file=" + dir / "ready1"}).exit_code == 1);
  RequireProgress(checker);
  checker.StopAndCheck();
}

TEST_CASE("supervisor and worker log as the data path was told") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir, {"--log-format=json"});
  MustAttach(datapath, target.RequestFor(1));
  target.Kill();  // of which the worker tells
  Eventually("the worker says so", [&] { return datapath.log().find("reconnecting") != std::string::npos; });
  for (const absl::string_view line : absl::StrSplit(datapath.log(), '\n', absl::SkipEmpty())) {
    INFO(line);
    CHECK(line.front() == '{');
  }
}

// Else nobody could reach the successor any more: it listens where the path led.
TEST_CASE("told to stop in the middle of a hand-over, the data path leaves the socket to its successor") {
  TempDir dir;
  Datapath datapath(dir);
  const auto told = [&](int signal, size_t times) {
    ::kill(datapath.pid(), signal);
    Eventually("it reads the signal", [&] {
      size_t found = 0;
      for (size_t at = 0; (at = datapath.log().find("told to stop", at)) != std::string::npos; ++at) ++found;
      return datapath.Ended() || found == times;
    });
  };
  auto taken = TakeOver(datapath.socket());
  REQUIRE(taken.ok());
  told(SIGINT, 1);
  SECTION("it ends when the successor serves") {
    absl::SleepFor(absl::Milliseconds(100));  // for a mistake to show
    CHECK_FALSE(datapath.Ended());
    ConfirmService(taken->predecessor.get());
  }
  SECTION("told again, it ends at once") { told(SIGINT, 2); }
  CHECK((datapath.Ended() || datapath.WaitForExit() == 0));
  CHECK(std::filesystem::exists(datapath.socket()));
}

// In a pod the container would be started again at once, and take the volumes back.
TEST_CASE("one of a series waits after its hand-over, and serves again when its successor has gone") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir, kTakeOver);
  MustAttach(datapath, target.RequestFor(1));
  Datapath successor(dir, kTakeOver);
  Eventually("it waits", [&] { return datapath.worker() == 0; });
  CHECK_FALSE(datapath.Ended());
  SECTION("told to stop, it ends at once") {
    ::kill(datapath.pid(), SIGTERM);
    CHECK(datapath.WaitForExit() == 0);
    CHECK(successor.initiator().List()->size() == 1);
  }
  SECTION("killed, the successor leaves the socket to it") {
    successor.Kill();
    Eventually("it serves", [&] { return datapath.worker() != 0 && IsServed(datapath.socket()); });
  }
}

}  // namespace
}  // namespace lunkeeper::testing
