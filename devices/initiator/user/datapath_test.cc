// The data path as its users see it: real processes, real FUSE and loop devices, a real target. Needs root.

#include "devices/initiator/user/datapath.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/initiator/user/testing/rig.h"
#include "devices/initiator/user/user_initiator.h"
#include "plugin/base/fail_point.h"
#include "plugin/base/status_macros.h"
#include "plugin/base/unique_fd.h"

namespace lunkeeper::testing {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Links the data path into this program, for the names of its fail points.
[[maybe_unused]] int (*volatile const kLinked)(const DatapathOptions&) = &RunDatapath;

constexpr bool UnderSanitizer() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return true;
#endif
#endif
  return false;
}

Device MustAttach(Datapath& datapath, const AttachRequest& request) {
  auto device = datapath.initiator().Attach(request);
  INFO(device.status() << "\n" << datapath.log());
  REQUIRE(device.ok());
  return *device;
}

TEST_CASE("a LUN becomes a block device that a file system can be made on") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 256 * kMiB);
  Datapath datapath(dir);

  const Device device = MustAttach(datapath, target.RequestFor(1));
  CHECK(device.size_bytes == 256 * kMiB);
  CHECK(device.health == DeviceHealth::kHealthy);
  const std::string text(3 * kMiB + 17, 'x');
  {
    Mounted mounted(device.path, dir / "mnt");
    std::ofstream(mounted.path() + "/file") << text;
    mounted.Unmount();
  }
  REQUIRE(datapath.initiator().Detach(device.volume).ok());
  CHECK_FALSE(datapath.initiator().Find(device.volume)->has_value());
  CHECK(datapath.initiator().Detach(device.volume).ok());

  const Device again = MustAttach(datapath, target.RequestFor(1));
  Mounted mounted(again.path, dir / "mnt", "ext4", false);
  std::ifstream file(mounted.path() + "/file");
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == text);
  CHECK(datapath.initiator().Find(again.volume)->value().counters.reads > 0);
}

TEST_CASE("a volume is attached once, however often it is asked for") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  target.AddLun(2, 64 * kMiB);
  Datapath datapath(dir);

  const Device device = MustAttach(datapath, target.RequestFor(1));
  CHECK(MustAttach(datapath, target.RequestFor(1)).path == device.path);
  CHECK(datapath.initiator().List()->size() == 1);

  AttachRequest elsewhere = target.RequestFor(2);
  elsewhere.volume = device.volume;
  CHECK(datapath.initiator().Attach(elsewhere).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a LUN that is not the volume is refused, and nothing is left") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir);
  AttachRequest request = target.RequestFor(1);

  request.serial = "another";
  CHECK(datapath.initiator().Attach(request).status().code() == absl::StatusCode::kFailedPrecondition);
  request = target.RequestFor(1);
  request.size_bytes = 65 * kMiB;
  CHECK(datapath.initiator().Attach(request).status().code() == absl::StatusCode::kFailedPrecondition);
  request = target.RequestFor(1);
  request.connection.chap.secret = "not-the-secret!!";
  const absl::Status refused = datapath.initiator().Attach(request).status();
  CHECK(refused.code() == absl::StatusCode::kPermissionDenied);
  CHECK(refused.message().find("not-the-secret") == std::string::npos);
  CHECK(datapath.initiator().List()->empty());
  MustAttach(datapath, target.RequestFor(1));
}

TEST_CASE("nobody there is told from a target that does not answer") {
  TempDir dir;
  const auto nobody = MakeUserInitiator(dir / "none", absl::Seconds(1));
  CHECK(nobody->List().status().code() == absl::StatusCode::kUnavailable);

  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir);
  target.Kill();
  const auto hasty = MakeUserInitiator(datapath.socket(), absl::Milliseconds(500));
  CHECK(hasty->Attach(target.RequestFor(1)).status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(datapath.initiator().List()->empty());
}

TEST_CASE("a mounted or open device is not detached") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, target.RequestFor(1));
  {
    Mounted mounted(device.path, dir / "mnt");
    CHECK(datapath.initiator().Detach(device.volume).code() == absl::StatusCode::kFailedPrecondition);
    std::ofstream(mounted.path() + "/still") << "works";
    mounted.Unmount();
  }
  UniqueFd open(::open(device.path.c_str(), O_RDWR | O_CLOEXEC));
  CHECK(datapath.initiator().Detach(device.volume).code() == absl::StatusCode::kFailedPrecondition);
  // Not written back by closing it: the data path must see to that.
  REQUIRE(::pwrite(open.get(), "buffered", 8, 0) == 8);
  open.Reset();
  REQUIRE(datapath.initiator().Detach(device.volume).ok());

  const Device again = MustAttach(datapath, target.RequestFor(1));
  char text[9] = {};
  open.Reset(::open(again.path.c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(::pread(open.get(), text, 8, 0) == 8);
  CHECK(std::string(text) == "buffered");
}

TEST_CASE("a read-only device takes no writes") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir);
  AttachRequest request = target.RequestFor(1);
  request.read_only = true;
  const Device device = MustAttach(datapath, request);
  CHECK(device.read_only);
  const UniqueFd fd(::open(device.path.c_str(), O_RDWR | O_CLOEXEC));
  CHECK((!fd || ::pwrite(fd.get(), "x", 1, 0) < 0));
}

TEST_CASE("a device grows under a mounted file system") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 400 * kMiB);
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, target.RequestFor(1));
  Mounted mounted(device.path, dir / "mnt", "xfs");
  target.Grow(1, 800 * kMiB);

  const auto grown = datapath.initiator().Resize(device.volume);
  REQUIRE(grown.ok());
  CHECK(grown->size_bytes == 800 * kMiB);
  MustRun({"xfs_growfs", mounted.path()});
  CHECK(std::filesystem::space(mounted.path()).capacity > 600 * kMiB);
  CHECK(datapath.initiator().Resize(VolumeId("none")).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("holes are zeroes, and large and small transfers arrive whole") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 16 * kMiB);
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, target.RequestFor(1));
  MustRun({"dd", "if=/dev/urandom", "of=" + dir / "data", "bs=1M", "count=16", "status=none"});
  for (const std::string size : {"4k", "64k", "68k", "1M", "4M"}) {
    INFO(size);
    MustRun({"dd", "if=" + dir / "data", "of=" + device.path, "bs=" + size, "oflag=direct", "status=none"});
    MustRun({"cmp", dir / "data", device.path});
  }
  for (const std::string how : {"--zeroout", "--force"}) {  // --force: a plain discard
    INFO(how);
    MustRun({"dd", "if=" + dir / "data", "of=" + device.path, "bs=1M", "oflag=direct", "status=none"});
    MustRun({"blkdiscard", how, "--offset", "1048576", "--length", "2097152", device.path});
    MustRun({"cmp", "--bytes=2097152", "--ignore-initial=1048576:0", device.path, "/dev/zero"});
    MustRun({"cmp", "--bytes=1048576", dir / "data", device.path});
    MustRun({"cmp", "--ignore-initial=3145728", dir / "data", device.path});
  }
}

TEST_CASE("workers killed under a writer cause no error and lose nothing") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 256 * kMiB);
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, target.RequestFor(1));
  Mounted mounted(device.path, dir / "mnt");
  Checker checker(mounted.path() + "/file", 32 * kMiB, 16);
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
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 256 * kMiB);
  Datapath datapath(dir, {"--hang-timeout=2"});
  const Device device = MustAttach(datapath, target.RequestFor(1));
  Checker checker(device.path, 32 * kMiB, 4);
  const pid_t worker = datapath.worker();
  ::kill(worker, SIGSTOP);
  datapath.WaitForOtherWorker(worker);
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
  Checker checker(device.path, 32 * kMiB, 4);
  const pid_t first = datapath.worker();
  REQUIRE(UpgradeDatapath(datapath.socket()).ok());
  const pid_t second = datapath.worker();
  CHECK(second != first);
  CHECK(std::filesystem::read_symlink(absl::StrCat("/proc/", second, "/exe")) == dir / "new");

  std::filesystem::remove(dir / "new");
  std::filesystem::copy_file("/bin/false", dir / "new");
  CHECK(UpgradeDatapath(datapath.socket()).code() == absl::StatusCode::kFailedPrecondition);
  datapath.WaitForOtherWorker(second);
  const uint64_t before = checker.writes();
  Eventually("writes go on", [&] { return checker.writes() > before + 200; });
  checker.StopAndCheck();
}

TEST_CASE("a killed holder ends I/O at once, and its successor lets go of what it left") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 128 * kMiB);
  target.AddLun(2, 128 * kMiB);
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, target.RequestFor(1));
  const Device idle = MustAttach(datapath, target.RequestFor(2));
  Mounted mounted(device.path, dir / "mnt");
  {
    Checker checker(mounted.path() + "/file", 16 * kMiB, 8);
    Eventually("writes", [&] { return checker.writes() > 200; });
    datapath.Kill();
    Eventually(
        "I/O fails", [&] { return checker.errors() > 100; }, absl::Seconds(5));
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
  mounted.Unmount();
  CHECK(datapath.initiator().Detach(device.volume).ok());
  CHECK(datapath.initiator().List()->empty());
  const Device again = MustAttach(datapath, target.RequestFor(1));
  CHECK(again.health == DeviceHealth::kHealthy);
}

TEST_CASE("a target that comes back is gone on with, without an error") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 256 * kMiB);
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, target.RequestFor(1));
  Checker checker(device.path, 32 * kMiB, 8);
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
  Checker checker(mounted.path() + "/file", 16 * kMiB, 4);
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

TEST_CASE("a detach does not wait for a target that is away") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, target.RequestFor(1));
  UniqueFd fd(::open(device.path.c_str(), O_RDWR | O_CLOEXEC));
  char page[4096];
  REQUIRE(::pread(fd.get(), page, sizeof(page), 0) == sizeof(page));
  target.Kill();
  REQUIRE(::pwrite(fd.get(), "never written back", 18, 0) == 18);
  CHECK(datapath.initiator().Detach(device.volume).code() == absl::StatusCode::kFailedPrecondition);
  ::sync_file_range(fd.get(), 0, 0, SYNC_FILE_RANGE_WRITE);  // something is under way when the device goes
  const absl::Time before = absl::Now();
  std::thread closer([&] { fd.Reset(); });
  Eventually("the device is detached", [&] { return datapath.initiator().Detach(device.volume).ok(); });
  CHECK(absl::Now() - before < absl::Seconds(15));
  closer.join();
  CHECK(datapath.initiator().List()->empty());
}

TEST_CASE("told to stop, the data path serves until nothing is attached") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  target.AddLun(2, 64 * kMiB);
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, target.RequestFor(1));
  CHECK(StopDatapath(datapath.socket()).code() == absl::StatusCode::kFailedPrecondition);
  ::kill(datapath.pid(), SIGTERM);
  Eventually("no new volumes", [&] {
    return datapath.initiator().Attach(target.RequestFor(2)).status().code() ==
           absl::StatusCode::kUnavailable;
  });
  CHECK(datapath.initiator().Find(device.volume)->value().health == DeviceHealth::kHealthy);
  REQUIRE(datapath.initiator().Detach(device.volume).ok());
  CHECK(datapath.WaitForExit() == 0);
}

TEST_CASE("many volumes are attached at the same time, and cost little") {
  TempDir dir;
  Target target(dir);
  constexpr int kVolumes = 50;
  for (int i = 1; i <= kVolumes; ++i) target.AddLun(i, 16 * kMiB);
  Datapath datapath(dir);
  Eventually("the pool is there", [&] { return datapath.memory_kib() > 64 * 1024; });
  MustAttach(datapath, target.RequestFor(1));  // brings in code and heap
  const uint64_t before = datapath.memory_kib();
  std::vector<std::thread> threads;
  std::atomic<int> attached{0};
  for (int i = 1; i <= kVolumes; ++i) {
    threads.emplace_back([&, i] { attached += datapath.initiator().Attach(target.RequestFor(i)).ok(); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(attached == kVolumes);
  CHECK(datapath.initiator().List()->size() == kVolumes);
  const uint64_t each = (datapath.memory_kib() - before) / kVolumes;
  WARN(absl::StrCat("data path: ", before, " KiB with no volume, and ", each, " KiB for each"));
  if (!UnderSanitizer()) CHECK(each < 256);
  for (int i = 1; i <= kVolumes; ++i) CHECK(datapath.initiator().Detach(target.RequestFor(i).volume).ok());
}

TEST_CASE("data path and writer in one small memory cgroup do not wait for each other") {
  if (UnderSanitizer()) return;  // which takes more memory than that
  const std::string cgroup = absl::StrCat("/sys/fs/cgroup/memory/lk-datapath-test-", ::getpid());
  if (!std::filesystem::exists("/sys/fs/cgroup/memory/memory.limit_in_bytes")) return;
  std::filesystem::create_directory(cgroup);
  std::ofstream(cgroup + "/memory.limit_in_bytes") << 40 * kMiB;
  const std::string enter = absl::StrCat("echo $$ > ", cgroup, "/cgroup.procs && exec \"$@\"");
  {
    TempDir dir;
    Target target(dir);
    target.AddLun(1, 512 * kMiB);
    Datapath datapath(dir, {"--pool-mib=8"}, {"sh", "-c", enter, "sh"});
    const Device device = MustAttach(datapath, target.RequestFor(1));
    Mounted mounted(device.path, dir / "mnt");
    const pid_t writer = Spawn({"sh", "-c", enter, "sh", "dd", "if=/dev/zero", "of=" + dir / "mnt/file",
                                "bs=1M", "count=300", "conv=fsync"},
                               dir / "dd.log");
    const pid_t worker = datapath.worker();
    std::ifstream members(cgroup + "/cgroup.procs");
    const std::vector<pid_t> pids{std::istream_iterator<pid_t>(members), {}};
    CHECK(std::count(pids.begin(), pids.end(), worker) == 1);
    int status = 0;
    Eventually(
        "the writer is done", [&] { return ::waitpid(writer, &status, WNOHANG) == writer; },
        absl::Seconds(60));
    CHECK(status == 0);
    CHECK(datapath.worker() == worker);
    mounted.Unmount();
    CHECK(datapath.initiator().Detach(device.volume).ok());
  }
  Eventually("the cgroup is empty", [&] {
    std::error_code error;
    return std::filesystem::remove(cgroup, error);
  });
}

TEST_CASE("a holder killed at any step leaves nothing, and the call succeeds when it is repeated") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
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

TEST_CASE("a volume whose target is away leaves the others enough memory") {
  TempDir dir;
  Target away(dir), target(dir);
  away.AddLun(1, 256 * kMiB);
  target.AddLun(2, 256 * kMiB);
  Datapath datapath(dir, {"--pool-mib=8"});
  const Device stuck = MustAttach(datapath, away.RequestFor(1));
  const Device device = MustAttach(datapath, target.RequestFor(2));
  Eventually("the target is away", [&] { return away.pid() > 0; });
  ::kill(away.pid(), SIGSTOP);
  const pid_t writer =
      Spawn({"dd", "if=/dev/zero", "of=" + stuck.path, "bs=16M", "count=8", "oflag=direct"}, dir / "dd.log");
  Checker checker(device.path, 32 * kMiB, 8);
  Eventually("writes go on beside it", [&] { return checker.writes() > 2000; });
  MustRun({"dd", "if=" + device.path, "of=/dev/null", "bs=4M", "iflag=direct", "count=16", "status=none"});
  checker.StopAndCheck();
  ::kill(away.pid(), SIGCONT);
  int status = 0;
  Eventually(
      "the other goes on", [&] { return ::waitpid(writer, &status, WNOHANG) == writer; }, absl::Seconds(60));
  CHECK(status == 0);
}

}  // namespace
}  // namespace lunkeeper::testing
