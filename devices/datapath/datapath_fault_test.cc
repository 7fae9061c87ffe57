// What the data path survives: its processes killed, and targets gone. As in datapath_test.cc, all of it
// real.

#include "devices/datapath/datapath.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/testing/rig.h"
#include "devices/datapath/user_initiator.h"

namespace lunkeeper::testing {
namespace {

// Links the data path into this program, for the names of its fail points.
[[maybe_unused]] int (*volatile const kLinked)(const DatapathOptions&) = &RunDatapath;

// Of a volume whose data path died: two answers tell of it.
absl::Status DetachWithLoss(Initiator& initiator, const VolumeId& volume) {
  CHECK(absl::IsDataLoss(initiator.Detach(volume)));
  CHECK(absl::IsDataLoss(initiator.Detach(volume)));
  return initiator.Detach(volume);
}

// By hand, or by Linux 6.15 and later where fs.fuse.max_request_timeout is set.
TEST_CASE("a volume whose FUSE connection the kernel has ended shows that it failed, and can be detached") {
  const bool is_away = GENERATE(false, true);
  AttachedLun rig(64 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  const auto health = [&] { return datapath.initiator().Find(device.volume).value()->health; };
  if (is_away) target.Kill();
  if (is_away) Eventually("it is away", [&] { return health() == DeviceHealth::kReconnecting; });
  const std::string connections = dir / "connections";
  std::filesystem::create_directory(connections);
  const std::string number = MustRun({"losetup", "--noheadings", "--output", "BACK-MAJ:MIN", device.path});
  MustRun({"mount", "-t", "fusectl", "fusectl", connections});
  const int minor = std::stoi(number.substr(number.find(':') + 1));
  std::ofstream(absl::StrCat(connections, "/", minor, "/abort")) << "1\n";
  MustRun({"umount", connections});
  Eventually("it has failed", [&] { return health() == DeviceHealth::kFailed; });
  CHECK(datapath.initiator().Detach(device.volume).ok());
}

TEST_CASE("workers killed under a writer cause no error and lose nothing") {
  AttachedLun rig(256 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  Mounted mounted(device.path, dir / "mnt");
  FileChecker checker(mounted.path() + "/file", 32 * kMiB, 16);
  pid_t worker = datapath.worker();
  for (int kill = 0; kill < 20; ++kill) {
    const uint64_t before = checker.writes();
    Eventually("writes go on", [&] { return checker.writes() > before + 200; });
    ::kill(worker, SIGKILL);
    worker = datapath.WaitForOtherWorker(worker);
    if (kill % 4 != 0) continue;
    ::kill(worker, SIGKILL);  // at once, while it is logging in
    worker = datapath.WaitForOtherWorker(worker);
  }
  const uint64_t before = checker.writes();
  Eventually("writes go on", [&] { return checker.writes() > before + 200; });
  checker.StopAndCheck();
  mounted.Unmount();
  CHECK(datapath.initiator().Detach(device.volume).ok());
}

TEST_CASE("a hung worker is replaced") {
  AttachedLun rig(256 * kMiB, {"--hang-timeout=2"});
  auto& [dir, target, datapath, device] = rig;
  FileChecker checker(device.path, 32 * kMiB, 4);
  const pid_t worker = datapath.worker();
  ::kill(worker, SIGSTOP);
  datapath.WaitForOtherWorker(worker);
  const uint64_t before = checker.writes();
  Eventually("writes go on", [&] { return checker.writes() > before + 200; });
  checker.StopAndCheck();
}

// Its kill would fail all volumes, and it may only have had no processor for a while.
TEST_CASE("where the kernel cannot hand requests on, a hung worker is given time") {
  AttachedLun rig(128 * kMiB, {"--hang-timeout=2", "--no-resend"});
  auto& [dir, target, datapath, device] = rig;
  FileChecker checker(device.path, 32 * kMiB, 4);
  const pid_t worker = datapath.worker();
  ::kill(worker, SIGSTOP);
  absl::SleepFor(absl::Seconds(6));
  CHECK(datapath.worker() == worker);
  ::kill(worker, SIGCONT);
  const uint64_t before = checker.writes();
  Eventually("writes go on", [&] { return checker.writes() > before + 200; });
  checker.StopAndCheck();
}

TEST_CASE("an upgrade replaces the worker, and a program that does not fit leaves things as they are") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 256 * kMiB);
  std::filesystem::copy_file(LK_DATAPATH_BINARY, dir / "new");
  Datapath datapath(dir, {"--worker-binary=" + dir / "new"});
  const Device device = MustAttach(datapath, target.RequestFor(1));
  FileChecker checker(device.path, 32 * kMiB, 4);
  const pid_t first = datapath.worker();
  const auto command = [&](const std::string& name) {
    return Run({LK_DATAPATH_BINARY, "datapath", name, "--socket=" + datapath.socket()});
  };
  REQUIRE(command("upgrade").exit_code == 0);
  const pid_t second = datapath.worker();
  CHECK(second != first);
  CHECK(std::filesystem::read_symlink(absl::StrCat("/proc/", second, "/exe")) == dir / "new");

  std::filesystem::remove(dir / "new");
  std::filesystem::copy_file("/bin/false", dir / "new");
  CHECK(UpgradeDatapath(datapath.socket()).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(command("upgrade").output.find("does not go together") != std::string::npos);
  CHECK(command("stop").output.find("attached") != std::string::npos);
  datapath.WaitForOtherWorker(second);
  const uint64_t before = checker.writes();
  Eventually("writes go on", [&] { return checker.writes() > before + 200; });
  CHECK(command("list").output.find(device.path + " 256 MiB healthy") != std::string::npos);
  checker.StopAndCheck();
}

TEST_CASE("where the kernel cannot hand requests on, a dead worker's volumes fail, and are attached anew") {
  AttachedLun rig(256 * kMiB, {"--no-resend"});
  auto& [dir, target, datapath, device] = rig;
  {
    Mounted mounted(device.path, dir / "mnt");
    FileChecker checker(mounted.path() + "/file", 16 * kMiB, 8);
    Eventually("writes", [&] { return checker.writes() > 200; });
    MustRun({"sync", "--file-system", mounted.path()});
    CHECK(UpgradeDatapath(datapath.socket()).code() == absl::StatusCode::kFailedPrecondition);
    const pid_t worker = datapath.worker();
    ::kill(worker, SIGKILL);
    Eventually("I/O fails", [&] { return checker.errors() > 100; });
    datapath.WaitForOtherWorker(worker);
    CHECK(datapath.initiator().Find(device.volume)->value().health == DeviceHealth::kFailed);
    checker.Stop();
    mounted.Unmount();
  }
  REQUIRE(datapath.initiator().Detach(device.volume).ok());
  const Device again = MustAttach(datapath, target.RequestFor(1));
  const Mounted mounted(again.path, dir / "mnt", "ext4", false);
  CHECK(std::filesystem::exists(mounted.path() + "/file"));
}

TEST_CASE("a killed supervisor ends I/O at once, and its successor lets go of what it left") {
  AttachedLun rig(128 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  target.AddLun(2, 128 * kMiB);
  const Device idle = MustAttach(datapath, target.RequestFor(2));
  Mounted mounted(device.path, dir / "mnt");
  {
    FileChecker checker(mounted.path() + "/file", 16 * kMiB, 8);
    Eventually("writes", [&] { return checker.writes() > 200; });
    datapath.Kill();
    Eventually(
        "I/O fails", [&] { return checker.errors() > 100; }, absl::Seconds(30));
  }
  Eventually("the unused device goes", [&] {
    return !std::filesystem::exists(absl::StrCat("/sys/block/", idle.path.substr(5), "/loop"));
  });

  datapath.Start();
  const auto found = datapath.initiator().Find(device.volume);
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  CHECK((*found)->path == device.path);
  CHECK((*found)->health == DeviceHealth::kFailed);
  CHECK(datapath.initiator().Detach(device.volume).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(datapath.initiator().Attach(target.RequestFor(1)).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  UniqueFd looked(::open(device.path.c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(looked.get() >= 0);
  mounted.Unmount();
  std::thread looker([&] {  // as a last close that comes a little after the unmount
    absl::SleepFor(absl::Milliseconds(300));
    looked.Reset();
  });
  CHECK(DetachWithLoss(datapath.initiator(), device.volume).ok());
  looker.join();
  CHECK(datapath.initiator().List()->empty());
  const Device again = MustAttach(datapath, target.RequestFor(1));
  CHECK(again.health == DeviceHealth::kHealthy);
  // What still names a dead device must not find another volume there.
  CHECK(again.path != device.path);
  CHECK(again.path != idle.path);
}

TEST_CASE("what a dead data path has left can be unmounted and let go of without another one") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  target.AddLun(2, 64 * kMiB);
  Datapath datapath(dir);
  Initiator& initiator = datapath.initiator();
  const Device device = MustAttach(datapath, target.RequestFor(1));
  const Device idle = MustAttach(datapath, target.RequestFor(2));
  Mounted mounted(device.path, dir / "mnt");
  std::filesystem::rename(datapath.socket(), dir / "aside");  // nobody answers, but it lives
  CHECK(initiator.Find(idle.volume).status().code() == absl::StatusCode::kUnavailable);
  CHECK(initiator.Detach(idle.volume).code() == absl::StatusCode::kUnavailable);
  CHECK(initiator.Fail(device.volume, device.target, "x").code() == absl::StatusCode::kUnavailable);
  datapath.Kill();
  // A question whether it serves is answered with the truth.
  CHECK(ListServedDevices(datapath.socket(), absl::Seconds(5)).status().code() ==
        absl::StatusCode::kUnavailable);
  CHECK(DetachWithLoss(initiator, idle.volume).ok());
  CHECK_FALSE(initiator.Find(idle.volume)->has_value());
  REQUIRE(initiator.Find(device.volume)->has_value());
  CHECK(initiator.Find(device.volume)->value().path == device.path);
  CHECK(initiator.Find(device.volume)->value().health == DeviceHealth::kFailed);
  CHECK(initiator.Detach(device.volume).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(initiator.Attach(target.RequestFor(2)).status().code() == absl::StatusCode::kUnavailable);
  CHECK(initiator.Fail(device.volume, device.target, "fenced").ok());
  mounted.Unmount();
  CHECK(DetachWithLoss(initiator, device.volume).ok());
  CHECK(initiator.List()->empty());
}

TEST_CASE("a target that comes back is gone on with, without an error") {
  AttachedLun rig(256 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  FileChecker checker(device.path, 32 * kMiB, 8);
  Eventually("writes", [&] { return checker.writes() > 200; });
  target.Kill();
  Eventually("it is noticed", [&] {
    return datapath.initiator().Find(device.volume)->value().health == DeviceHealth::kReconnecting;
  });
  const pid_t worker = datapath.worker();
  ::kill(worker, SIGKILL);  // while it is away, too
  datapath.WaitForOtherWorker(worker);
  target.Start();
  const uint64_t before = checker.writes();
  Eventually("writes go on", [&] { return checker.writes() > before + 200; });
  checker.StopAndCheck();
  CHECK(datapath.initiator().Find(device.volume)->value().health == DeviceHealth::kHealthy);
}

TEST_CASE("a volume whose target has gone fails for good, and can be detached") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 256 * kMiB);
  target.AddLun(2, 16 * kMiB);  // a tgtd without any target resets connections and refuses no login
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, target.RequestFor(1));
  Mounted mounted(device.path, dir / "mnt");
  FileChecker checker(mounted.path() + "/file", 16 * kMiB, 4);
  Eventually("writes", [&] { return checker.writes() > 200; });
  target.RemoveTarget(1);
  Eventually("I/O fails", [&] { return checker.errors() > 10; });
  CHECK(datapath.initiator().Find(device.volume)->value().health == DeviceHealth::kFailed);

  const pid_t worker = datapath.worker();
  target.AddLun(1, 256 * kMiB);  // even if the target came back, and with another worker
  ::kill(worker, SIGKILL);
  datapath.WaitForOtherWorker(worker);
  const uint64_t errors = checker.errors();
  Eventually("I/O fails still", [&] { return checker.errors() > errors + 10; });
  CHECK(datapath.initiator().Find(device.volume)->value().health == DeviceHealth::kFailed);
  checker.Stop();
  mounted.Unmount();
  CHECK(datapath.initiator().Detach(device.volume).ok());
}

TEST_CASE(
    "a device that is told to fail does so at once and for good, whatever its target or its worker do") {
  AttachedLun rig(64 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  target.AddLun(2, 64 * kMiB);
  const Device neighbour = MustAttach(datapath, target.RequestFor(2));
  FileChecker checker(device.path, device.size_bytes, 4);
  FileChecker beside(neighbour.path, neighbour.size_bytes, 2);
  Eventually("it is written to", [&] { return checker.writes() > 100; });

  Initiator& initiator = datapath.initiator();
  REQUIRE(initiator.Fail(device.volume, neighbour.target, "of another grant").ok());
  CHECK(initiator.Find(device.volume)->value().health == DeviceHealth::kHealthy);
  REQUIRE(initiator.Fail(device.volume, device.target, "fenced").ok());
  CHECK(initiator.Find(device.volume)->value().health == DeviceHealth::kFailed);
  CHECK(initiator.Find(device.volume)->value().reason == "fenced");
  Eventually("its I/O fails", [&] { return checker.errors() > 0; });
  checker.Stop();
  const auto fails = [&] {
    const UniqueFd fd(::open(device.path.c_str(), O_RDWR | O_CLOEXEC));
    return ::pwrite(fd.get(), "x", 1, 0) < 0 || ::fsync(fd.get()) != 0;
  };
  CHECK(fails());
  const pid_t worker = datapath.worker();
  ::kill(worker, SIGKILL);
  datapath.WaitForOtherWorker(worker);
  CHECK(fails());
  CHECK(initiator.Find(device.volume)->value().health == DeviceHealth::kFailed);
  REQUIRE(initiator.Detach(device.volume).ok());
  beside.StopAndCheck();
  // A new grant has another target: here, the same one attached anew.
  CHECK(MustAttach(datapath, target.RequestFor(1)).health == DeviceHealth::kHealthy);
  CHECK(initiator.Fail(VolumeId("none"), device.target, "fenced").ok());
}

TEST_CASE("told to stop, the data path serves until nothing is attached") {
  AttachedLun rig(64 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  target.AddLun(2, 64 * kMiB);
  CHECK(StopDatapath(datapath.socket()).code() == absl::StatusCode::kFailedPrecondition);
  ::kill(datapath.pid(), SIGTERM);
  Eventually("no new volumes", [&] {
    const auto attached = datapath.initiator().Attach(target.RequestFor(2));
    if (attached.ok())
      datapath.initiator().Detach(attached->volume).IgnoreError();  // it came before the signal
    return attached.status().code() == absl::StatusCode::kUnavailable;
  });
  CHECK(datapath.initiator().Find(device.volume)->value().health == DeviceHealth::kHealthy);
  REQUIRE(datapath.initiator().Detach(device.volume).ok());
  CHECK(datapath.WaitForExit() == 0);
}

// Between the end of the volume and the answer it has seen for seconds that it may end.
TEST_CASE("told to stop, the data path answers its last detach before it ends") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  std::ofstream(dir / "wait") << "#!/bin/sh\nsleep 3\n";
  std::filesystem::permissions(dir / "wait", std::filesystem::perms::owner_all);
  Datapath datapath(dir, {}, {"env", "LUNKEEPER_FAIL_POINT=datapath.detach.erased:exec=" + (dir / "wait")});
  const Device device = MustAttach(datapath, target.RequestFor(1));
  ::kill(datapath.pid(), SIGTERM);
  Eventually("it is told", [&] { return absl::StrContains(datapath.log(), "told to stop"); });
  const UniqueFd call = *ConnectTo(datapath.socket());
  datapath::Request request;
  request.set_timeout_ms(60'000);
  request.mutable_detach()->set_volume(device.volume.value());
  REQUIRE(SendMessage(call.get(), request).ok());
  datapath::Response answer;
  do {
    REQUIRE(ReceiveMessage(call.get(), absl::Now() + absl::Minutes(1), &answer) == absl::OkStatus());
  } while (answer.more());
  CHECK(answer.code() == 0);
  CHECK(datapath.WaitForExit() == 0);
}

TEST_CASE("a supervisor killed at any step leaves nothing, and the call succeeds when it is repeated") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  // Only what is linked has fail points here, and the data path itself runs as a program of its own.
  int (*volatile const linked)(const DatapathOptions&) = &RunDatapath;
  REQUIRE(linked != nullptr);
  int tried = 0;
  for (const std::string& name : FailPointNames()) {
    if (name.rfind("datapath.", 0) != 0) continue;
    INFO(name);
    Datapath datapath(dir, {},
                      {"env", "LUNKEEPER_FAIL_POINT=" + name, "LUNKEEPER_FAIL_POINT_ONCE=" + dir / name});
    const auto again = [&](const std::function<absl::Status()>& call) {
      absl::Status done = call();
      Eventually("the repeated call succeeds", [&] {
        if (!done.ok() && datapath.Ended()) datapath.Start();
        return done.ok() || (done = call()).ok();
      });
    };
    const AttachRequest request = target.RequestFor(1);
    const auto attach = [&] { return datapath.initiator().Attach(request).status(); };
    again(attach);
    again([&] {
      RETURN_IF_ERROR(attach());
      return datapath.initiator().Resize(request.volume).status();
    });
    again(attach);
    const std::string path = datapath.initiator().Find(request.volume)->value().path;
    again([&] { return datapath.initiator().Detach(request.volume); });
    CHECK(std::filesystem::exists(dir / name));
    CHECK(datapath.initiator().List()->empty());
    CHECK_FALSE(std::filesystem::exists(absl::StrCat("/sys/block/", path.substr(5), "/loop")));
    ++tried;
  }
  CHECK(tried > 8);
}

}  // namespace
}  // namespace lunkeeper::testing
