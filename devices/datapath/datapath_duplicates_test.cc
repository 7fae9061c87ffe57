// A supervisor is killed, and the next one goes on with its volumes: the test keeps duplicates of its
// descriptors, as the node plugin does. As in datapath_test.cc, all of it real.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/datapath_lock.h"
#include "devices/datapath/duplicate_store.h"
#include "devices/datapath/duplicates.h"
#include "devices/datapath/testing/rig.h"
#include "devices/datapath/user_initiator.h"

namespace lunkeeper::testing {
namespace {

bool WriteFails(const std::string& device) {
  const UniqueFd fd(::open(device.c_str(), O_RDWR | O_CLOEXEC));
  return ::pwrite(fd.get(), "x", 1, 0) < 0 || ::fsync(fd.get()) != 0;
}

// A data path with one volume, and a store beside it.
struct KeptDatapath {
  explicit KeptDatapath(absl::Duration kept_for = kKeptFor)
      : store(StartDuplicateStore(dir / "datapath.sock", kept_for)) {
    Eventually("the store listens", [&] { return ConnectToDuplicateStore(dir / "datapath.sock").ok(); });
    target.AddLun(1, 256 * kMiB);
    target.AddLun(2, 64 * kMiB);
    datapath.emplace(dir);
    device = MustAttach(*datapath, target.RequestFor(1));
  }
  DeviceHealth HealthOf(const Device& of) { return datapath->initiator().Find(of.volume)->value().health; }
  absl::Status Detach(const Device& of) { return datapath->initiator().Detach(of.volume); }

  TempDir dir;
  Target target{dir};
  std::unique_ptr<DuplicateStore> store;
  std::optional<Datapath> datapath;
  Device device;
};

TEST_CASE("a supervisor killed again and again under a writer costs no error") {
  KeptDatapath rig;
  Mounted mounted(rig.device.path, rig.dir / "mnt");
  FileChecker checker(mounted.path() + "/file", 32 * kMiB, 16);
  for (int round = 0; round < 20; ++round) {
    RequireProgress(checker);
    // A volume that comes and goes, so that what is kept changes.
    const Device other = MustAttach(*rig.datapath, rig.target.RequestFor(2));
    rig.datapath->Kill();
    rig.datapath->Start();
    if (round % 4 == 0) {  // at once, while it logs in
      rig.datapath->Kill();
      rig.datapath->Start();
    }
    REQUIRE(rig.Detach(other).ok());
    CHECK_FALSE(IsBound(other.path));
  }
  RequireProgress(checker);
  CHECK(rig.HealthOf(rig.device) == DeviceHealth::kHealthy);
  CHECK(rig.datapath->initiator().Find(rig.device.volume)->value().path == rig.device.path);
  checker.StopAndCheck();
  rig.target.Grow(1, 512 * kMiB);
  CHECK(rig.datapath->initiator().Resize(rig.device.volume)->size_bytes == 512 * kMiB);
  mounted.Unmount();
  CHECK(rig.Detach(rig.device).ok());
  CHECK(rig.datapath->initiator().List()->empty());
}

TEST_CASE("a supervisor killed while it takes over leaves all to the next one") {
  KeptDatapath rig;
  FileChecker checker(rig.device.path, 32 * kMiB, 8);
  int tried = 0;
  for (const std::string& point : FailPointNames()) {
    if (point.rfind("duplicates.", 0) != 0) continue;
    INFO(point);
    RequireProgress(checker);
    rig.datapath->Kill();
    rig.datapath.emplace(rig.dir, std::vector<std::string>{},
                         std::vector<std::string>{"env", "LUNKEEPER_FAIL_POINT=" + point});
    Eventually("it dies", [&] { return rig.datapath->Ended(); });
    rig.datapath.emplace(rig.dir);
    RequireProgress(checker);
    CHECK(rig.HealthOf(rig.device) == DeviceHealth::kHealthy);
    ++tried;
  }
  CHECK(tried == 4);
  checker.StopAndCheck();
}

TEST_CASE("a successor's volumes are kept, and no more its predecessor's") {
  KeptDatapath rig;
  const Device other = MustAttach(*rig.datapath, rig.target.RequestFor(2));
  FileChecker checker(rig.device.path, 32 * kMiB, 8);
  Datapath successor(rig.dir, {"--take-over"});
  CHECK(rig.datapath->WaitForExit() == 0);
  REQUIRE(successor.initiator().Detach(other.volume).ok());
  CHECK_FALSE(IsBound(other.path));
  RequireProgress(checker);
  successor.Kill();
  rig.datapath->Start();
  RequireProgress(checker);
  checker.StopAndCheck();
  CHECK(rig.datapath->initiator().List()->size() == 1);
}

// No volume comes or goes in between, so the store is given nothing anew.
TEST_CASE("a successor that is killed soon after it took over leaves all to the next one") {
  KeptDatapath rig;
  FileChecker checker(rig.device.path, 32 * kMiB, 8);
  Datapath successor(rig.dir, {"--take-over"});
  CHECK(rig.datapath->WaitForExit() == 0);
  RequireProgress(checker);
  successor.Kill();
  rig.datapath->Start();
  RequireProgress(checker);
  checker.StopAndCheck();
  CHECK(rig.HealthOf(rig.device) == DeviceHealth::kHealthy);
}

TEST_CASE("a volume that is fenced stays so, whichever supervisor dies") {
  KeptDatapath rig;
  const Device fenced = MustAttach(*rig.datapath, rig.target.RequestFor(2));
  FileChecker checker(rig.device.path, 32 * kMiB, 4);
  const UniqueFd user(::open(fenced.path.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(rig.datapath->initiator().Fail(fenced.volume, fenced.target, "fenced").ok());
  rig.datapath->Kill();
  CHECK(WriteFails(fenced.path));
  rig.datapath->Start();
  RequireProgress(checker);
  CHECK(WriteFails(fenced.path));
  CHECK(rig.HealthOf(fenced) == DeviceHealth::kFailed);
  checker.StopAndCheck();
}

// What that one had given the store is of before the fence.
TEST_CASE("a volume that is fenced stays so, after a successor that died while it took over") {
  KeptDatapath rig;
  const Device fenced = MustAttach(*rig.datapath, rig.target.RequestFor(2));
  const UniqueFd user(::open(fenced.path.c_str(), O_RDWR | O_CLOEXEC));
  FileChecker checker(rig.device.path, 32 * kMiB, 4);
  RequireProgress(checker);
  Datapath successor(rig.dir, {"--take-over"}, {"env", "LUNKEEPER_FAIL_POINT=handover.successor.started"});
  Eventually("it dies", [&] { return successor.Ended(); });
  REQUIRE(rig.datapath->initiator().Fail(fenced.volume, fenced.target, "fenced").ok());
  rig.datapath->Kill();
  rig.datapath->Start();
  RequireProgress(checker);
  CHECK(WriteFails(fenced.path));
  CHECK(rig.HealthOf(fenced) == DeviceHealth::kFailed);
  checker.StopAndCheck();
}

// While no supervisor lives: one would give the store everything again.
TEST_CASE("a store takes no half of what it is to keep") {
  KeptDatapath rig;
  FileChecker checker(rig.device.path, 32 * kMiB, 4);
  RequireProgress(checker);
  rig.datapath->Kill();
  const auto half = ConnectToDuplicateStore(rig.datapath->socket());
  REQUIRE(half.ok());
  const UniqueFd parcel(::open("/dev/null", O_RDWR | O_CLOEXEC));
  REQUIRE(SendDuplicates(half->get(), {parcel.get()}).ok());
  CHECK(Eventually([&] { return IsDuplicateStoreGone(half->get()); }, absl::Seconds(20)));  // it hangs up
  rig.datapath->Start();
  RequireProgress(checker);
  checker.StopAndCheck();
}

TEST_CASE("a volume that is detached goes, even if the store hangs") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, target.RequestFor(1));
  // It takes no calls: what it is given waits in its socket, which is kept as well.
  const auto hung = ListenAt(dir / "datapath.sock.duplicates");
  REQUIRE(hung.ok());
  Eventually("it is given everything", [&] {
    pollfd calls = {hung->get(), POLLIN, 0};
    return ::poll(&calls, 1, 0) == 1;
  });
  SECTION("detached") {
    REQUIRE(datapath.initiator().Detach(device.volume).ok());
    CHECK_FALSE(IsBound(device.path));
  }
  // What it may keep cannot be known, and must not be touched.
  SECTION("another data path does not start beside it") {
    const UniqueFd user(::open(device.path.c_str(), O_RDWR | O_CLOEXEC));
    datapath.Kill();
    CHECK(IsBound(device.path));
    CHECK(Run({LK_DATAPATH_BINARY, "datapath", "--socket=" + datapath.socket()}).exit_code == 1);
  }
}

TEST_CASE("if no supervisor comes in time, I/O fails, and the data path counts as dead") {
  KeptDatapath rig(absl::Seconds(5));
  FileChecker checker(rig.device.path, 32 * kMiB, 4);
  RequireProgress(checker);
  rig.datapath->Kill();
  CHECK_FALSE(IsDatapathDead(rig.datapath->socket()));
  // Its I/O only waits: nobody may take it for an orphan.
  CHECK(rig.datapath->initiator().Find(rig.device.volume).status().code() == absl::StatusCode::kUnavailable);
  CHECK(checker.errors() == 0);
  Eventually("I/O fails", [&] { return checker.errors() > 10; });
  Eventually("it counts as dead", [&] { return IsDatapathDead(rig.datapath->socket()); });
  checker.Stop();
  CHECK(absl::IsDataLoss(rig.Detach(rig.device)));
  CHECK(absl::IsDataLoss(rig.Detach(rig.device)));
  CHECK(rig.Detach(rig.device).ok());
  rig.datapath->Start();
  CHECK(MustAttach(*rig.datapath, rig.target.RequestFor(1)).health == DeviceHealth::kHealthy);
}

TEST_CASE("a store that is started again is given everything, and one that died with it is as none") {
  KeptDatapath rig;
  FileChecker checker(rig.device.path, 32 * kMiB, 4);
  RequireProgress(checker);
  rig.store.reset();
  CHECK_FALSE(std::filesystem::exists(rig.dir / "datapath.sock.duplicates"));
  SECTION("another one") {
    rig.store = StartDuplicateStore(rig.datapath->socket());
    Eventually("it has them", [&] { return !AskForDuplicates(rig.datapath->socket())->empty(); });
    rig.datapath->Kill();
    rig.datapath->Start();
    RequireProgress(checker);
    checker.StopAndCheck();
  }
  SECTION("none") {
    rig.datapath->Kill();
    Eventually("I/O fails", [&] { return checker.errors() > 10; });
    Eventually("it counts as dead", [&] { return IsDatapathDead(rig.datapath->socket()); });
  }
}

TEST_CASE("a data path that is ended on purpose leaves nothing with the store") {
  KeptDatapath rig;
  const UniqueFd user(::open(rig.device.path.c_str(), O_RDWR | O_CLOEXEC));
  ::kill(rig.datapath->pid(), SIGINT);
  Eventually("it reads the signal",
             [&] { return rig.datapath->log().find("told to stop") != std::string::npos; });
  ::kill(rig.datapath->pid(), SIGINT);
  CHECK(rig.datapath->WaitForExit() == 0);
  CHECK(WriteFails(rig.device.path));
  Eventually("it counts as dead", [&] { return IsDatapathDead(rig.datapath->socket()); });
}

// What a supervisor that was killed during a detach leaves.
TEST_CASE("a device that a detach had sealed is not gone on with") {
  KeptDatapath rig;
  rig.datapath->Kill();
  rig.datapath.emplace(rig.dir, std::vector<std::string>{},
                       std::vector<std::string>{"env", "LUNKEEPER_FAIL_POINT=datapath.detach.sealed"});
  rig.Detach(rig.device).IgnoreError();  // OK where the device has gone already
  Eventually("it dies", [&] { return rig.datapath->Ended(); });
  rig.datapath.emplace(rig.dir);
  CHECK(rig.Detach(rig.device).ok());
  CHECK_FALSE(IsBound(rig.device.path));
  CHECK(MustAttach(*rig.datapath, rig.target.RequestFor(1)).health == DeviceHealth::kHealthy);
}

}  // namespace
}  // namespace lunkeeper::testing
