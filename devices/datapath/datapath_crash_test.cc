// Requests that crash the worker, each time a worker reads them. As in datapath_test.cc, all of it real.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <future>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "devices/datapath/crash_history.h"
#include "devices/datapath/testing/rig.h"

namespace lunkeeper::testing {
namespace {

constexpr uint64_t kPoison = 8 * kMiB;  // a request for this place crashes the worker that reads it
constexpr uint64_t kElsewhere = 4 * kMiB;

std::vector<std::string> Poisoned(std::vector<std::string> more = {}, const std::string& action = "") {
  std::vector<std::string> command = {
      "env", absl::StrCat("LUNKEEPER_FAIL_POINT=worker.request.taken@", kPoison, action)};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

// 0, or the errno.
int WritePoison(const std::string& device) {
  const UniqueFd fd(::open(device.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
  alignas(4096) static const char block[4096] = {};
  return ::pwrite(fd.get(), block, sizeof(block), kPoison) == sizeof(block) ? 0 : errno;
}

size_t CountOf(const std::string& word, const std::string& text) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++found;
  return found;
}

// Two volumes of one data path.
struct Pair {
  // The supervisor does not end a hung worker before the worker itself does, however busy the machine is.
  explicit Pair(const std::vector<std::string>& wrapper)
      : datapath(dir, {"--take-over", "--hang-timeout=600"}, wrapper) {
    target.AddLun(1, 64 * kMiB);
    target.AddLun(2, 64 * kMiB);
    poisoned = MustAttach(datapath, target.RequestFor(1));
    neighbour = MustAttach(datapath, target.RequestFor(2));
  }
  TempDir dir;
  Target target{dir};
  Datapath datapath;
  Device poisoned, neighbour;
};

TEST_CASE("a request that crashes or hangs every worker costs its own volume, and no other") {
  const std::string action = GENERATE("", ":hang");
  CAPTURE(action);
  Pair pair(Poisoned({}, action));
  auto& [dir, target, datapath, poisoned, neighbour] = pair;
  FileChecker checker(neighbour.path, kElsewhere, 8);
  Eventually("writes", [&] { return checker.writes() > 200; });
  std::future<int> written = std::async(std::launch::async, WritePoison, poisoned.path);
  Eventually(
      "it is failed",
      [&] { return datapath.initiator().Find(poisoned.volume)->value().health == DeviceHealth::kFailed; },
      absl::Minutes(5));
  CHECK(written.get() == EIO);
  CHECK(datapath.initiator().Find(poisoned.volume)->value().reason.find("set aside") == 0);
  const auto later = checker.writes();
  Eventually("writes go on", [&] { return checker.writes() > later + 200; });
  CHECK(datapath.initiator().Find(neighbour.volume)->value().health == DeviceHealth::kHealthy);
  CHECK(CountOf("volume set aside", datapath.log()) == 1);
  CHECK(CountOf("worker died", datapath.log()) == CrashHistory::kMostCrashes);

  SECTION("a successor does not serve it either") {
    const Datapath successor(dir, {"--take-over"});
    CHECK(pair.datapath.initiator().Find(poisoned.volume)->value().health == DeviceHealth::kFailed);
    CHECK(WritePoison(poisoned.path) != 0);
    checker.StopAndCheck();
  }
  SECTION("detached and attached anew, it is tried again") {
    REQUIRE(datapath.initiator().Detach(poisoned.volume).ok());
    poisoned = MustAttach(datapath, target.RequestFor(1));
    CHECK(poisoned.health == DeviceHealth::kHealthy);
    FileChecker again(poisoned.path, kElsewhere, 2);
    Eventually("it is written to", [&] { return again.writes() > 100; });
    again.StopAndCheck();
    checker.StopAndCheck();
  }
}

TEST_CASE("a request that crashes one worker is carried out by the next one") {
  TempDir here;
  Pair pair(Poisoned({"LUNKEEPER_FAIL_POINT_ONCE=" + here / "crashed"}));
  CHECK(WritePoison(pair.poisoned.path) == 0);
  CHECK(CountOf("worker crashed while it worked on a volume", pair.datapath.log()) == 1);
  CHECK(pair.datapath.initiator().Find(pair.poisoned.volume)->value().health == DeviceHealth::kHealthy);
}

TEST_CASE("workers that another process kills by a crash's signal cost no volume, though only one is busy") {
  AttachedLun lun(64 * kMiB, {"--take-over"});
  for (int kill = 0; kill < CrashHistory::kMostCrashes + 2; ++kill) {
    FileChecker checker(lun.device.path, kElsewhere, 8);
    Eventually("writes", [&] { return checker.writes() > 100; });
    const pid_t worker = lun.datapath.worker();
    REQUIRE(worker > 0);
    REQUIRE(::kill(worker, SIGABRT) == 0);
    lun.datapath.WaitForOtherWorker(worker);
    RequireProgress(checker);
    checker.StopAndCheck();
  }
  CHECK(CountOf("worker crashed while it worked on a volume", lun.datapath.log()) == 0);
  CHECK(lun.datapath.initiator().Find(lun.device.volume)->value().health == DeviceHealth::kHealthy);
}

// The supervisor logs the death while it holds the lock that all calls need.
TEST_CASE("a worker that dies is replaced although nobody reads the log") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  const std::string log = dir / "fifo";
  MustRun({"mkfifo", log});
  const UniqueFd reader(::open(log.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  Datapath datapath(dir, {}, {"sh", "-c", "exec \"$0\" \"$@\" 2>" + log});
  const Device device = MustAttach(datapath, target.RequestFor(1));
  FileChecker checker(device.path, 32 * kMiB, 4);
  RequireProgress(checker);
  const std::string page(4096, '.');
  while (::write(reader.get(), page.data(), page.size()) > 0 || ::write(reader.get(), page.data(), 1) > 0) {
  }
  const pid_t worker = datapath.worker();
  ::kill(worker, SIGKILL);
  datapath.WaitForOtherWorker(worker);
  RequireProgress(checker);
  checker.StopAndCheck();
}

}  // namespace
}  // namespace lunkeeper::testing
