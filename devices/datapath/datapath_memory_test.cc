// The memory that the data path needs: for each volume, beside a writer in one cgroup, and with a target
// away. As in datapath_test.cc, all of it real.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/under_sanitizer.h"
#include "base/units.h"
#include "devices/datapath/testing/rig.h"
#include "devices/datapath/user_initiator.h"

namespace lunkeeper::testing {
namespace {

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
    // A pod's process is the OOM killer's first choice, and so is this one: then it is started again.
    const std::string write = absl::StrCat(
        "echo 1000 > /proc/self/oom_score_adj; for i in 1 2 3 4 5 6 7 8 9 10; do dd if=/dev/zero of=",
        dir / "mnt/file", " bs=1M count=300 conv=fsync && exit 0; done; exit 1");
    const pid_t writer = Spawn({"sh", "-c", enter, "sh", "sh", "-c", write}, dir / "dd.log");
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
  FileChecker checker(device.path, 32 * kMiB, 8);
  Eventually("writes go on beside it", [&] { return checker.writes() > 2000; });
  MustRun({"dd", "if=" + device.path, "of=/dev/null", "bs=4M", "iflag=direct", "count=16", "status=none"});
  checker.StopAndCheck();
  ::kill(away.pid(), SIGCONT);
  int status = 0;
  Eventually(
      "the other goes on", [&] { return ::waitpid(writer, &status, WNOHANG) == writer; }, absl::Seconds(60));
  CHECK(status == 0);
}

// As write-back does it the moment an array goes away: many writes at once, to each of its volumes.
TEST_CASE("volumes of an array that is away leave a volume of another one enough memory") {
  const std::string size = GENERATE("1M", "16M");
  const int volumes = GENERATE(2, 16);
  INFO(size << ", " << volumes << " volumes");
  TempDir dir;
  Target away(dir), target(dir);
  target.AddLun(volumes + 1, 256 * kMiB);
  Datapath datapath(dir, {"--pool-mib=16", "--threads=1"});
  std::vector<Device> stuck;
  for (int i = 1; i <= volumes; ++i) {
    away.AddLun(i, 64 * kMiB);
    stuck.push_back(MustAttach(datapath, away.RequestFor(i)));
  }
  const Device device = MustAttach(datapath, target.RequestFor(volumes + 1));
  ::kill(away.pid(), SIGSTOP);
  std::vector<pid_t> writers;
  for (const Device& each : stuck) {
    writers.push_back(Spawn({"dd", "if=/dev/zero", "of=" + each.path, "bs=" + size, "count=1", "conv=fsync"},
                            dir / "dd.log"));
  }
  absl::SleepFor(absl::Seconds(1));  // by now all of them have written what they can
  FileChecker checker(device.path, 32 * kMiB, 8);
  Eventually("writes go on beside it", [&] { return checker.writes() > 2000; });
  MustRun({"dd", "if=" + device.path, "of=/dev/null", "bs=1M", "iflag=direct", "count=16", "status=none"});
  checker.StopAndCheck();
  ::kill(away.pid(), SIGCONT);
  for (const pid_t writer : writers) {
    int status = 0;
    Eventually(
        "the others go on", [&] { return ::waitpid(writer, &status, WNOHANG) == writer; }, absl::Seconds(60));
    CHECK(status == 0);
  }
}

}  // namespace
}  // namespace lunkeeper::testing
