// What the array syncs of an image that a node writes to, and what it makes of an error.

#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdarg>
#include <fstream>

#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/tgtd_lock.h"

namespace lunkeeper::testing {
namespace {

const NodeId kA("node-a.1");
constexpr uint64_t kLarge = 32 << 20;

// The file of the volume; 0: none.
std::atomic<ino_t> watched{0};
// Its next sync fails, which the kernel tells once.
std::atomic<bool> fails_once{false};
std::atomic<int> syncs{0}, clones_of_unsynced{0}, clones{0};

bool IsWatched(int fd) {
  struct stat file {};
  return watched != 0 && ::fstat(fd, &file) == 0 && file.st_ino == watched;
}

int Sync(int fd, long call) {
  if (IsWatched(fd)) {
    if (fails_once.exchange(false)) {
      errno = EIO;
      return -1;
    }
    ++syncs;
  }
  return static_cast<int>(::syscall(call, fd));
}

// A volume that node-a has, on an XFS that can clone.
struct Granted {
  Granted() {
    REQUIRE(fixture.Open().ok());
    array = fixture.Cluster();
    volume = array->volumes().CreateVolume(Spec("v", 16)).value().id;
    connection =
        array->grants()
            .AcquireGrant({.volume = volume, .node = kA, .access = Access::kExclusive}, absl::ZeroDuration())
            .value()
            .connection;
    struct stat file {};
    REQUIRE(::stat((fixture.options.pool_dir + "/volumes/" + volume.value()).c_str(), &file) == 0);
    syncs = clones = clones_of_unsynced = 0;
    fails_once = false;
    watched = file.st_ino;
  }
  ~Granted() { watched = 0; }
  std::string CacheId() const { return PlainInitiator::Login(connection).value()->Identity().product; }
  absl::Status Grow() const { return array->volumes().ExpandVolume(volume, kLarge).status(); }
  void RestartAgent() {
    array.reset();
    REQUIRE(fixture.Open().ok());
    array = fixture.Cluster();
  }
  void RestartTgtd() {
    array.reset();
    fixture.Close();
    const TgtdLock lock(TgtdLockPath(fixture.options.pool_dir, 0));
    ::kill(TgtdProcess(fixture.options.control_port), SIGKILL);
    REQUIRE(
        Eventually([&] { return TgtdProcess(fixture.options.control_port) == 0 && lock.FindHolder() == 0; }));
    RestartAgent();
  }

  TempDir directory;
  LoopMount xfs = LoopMount(directory.path(), "400M");
  ArrayFixture fixture = ArrayFixture(xfs.path() + "/pool");
  std::unique_ptr<Array> array;
  VolumeId volume;
  Connection connection;
};

TEST_CASE_METHOD(Granted, "after an error of a sync a node learns that what it has not flushed may be lost") {
  const std::string before = CacheId();
  fails_once = true;
  const bool in_a_snapshot = GENERATE(false, true);
  if (in_a_snapshot)
    CHECK_FALSE(array->volumes().CreateSnapshot("s", volume).ok());
  else
    CHECK_FALSE(Grow().ok());
  REQUIRE_FALSE(fails_once);
  CHECK(CacheId() == before);  // tgtd has the image open still, and learns of the error itself
  if (GENERATE(false, true)) RestartAgent();
  REQUIRE(Grow() == absl::OkStatus());
  const std::string after = CacheId();
  CHECK(after != before);
  CHECK(after.size() == 16);
}

TEST_CASE_METHOD(Granted,
                 "of an image with a cache id of its own, too, a node learns that its host has restarted") {
  fails_once = true;
  CHECK_FALSE(Grow().ok());
  REQUIRE(Grow() == absl::OkStatus());
  const std::string before = CacheId();
  RestartTgtd();
  CHECK(CacheId() == before);
  std::ofstream(directory / "boot_id") << "00000000-1111-2222-3333-444444444444\n";
  fixture.options.boot_id_path = directory / "boot_id";
  RestartTgtd();
  const std::string after = CacheId();
  CHECK(after != before);
  CHECK(after.size() == 16);
}

TEST_CASE_METHOD(Granted, "a growth without an error leaves the cache id as it is") {
  const std::string before = CacheId();
  REQUIRE(Grow() == absl::OkStatus());
  CHECK(syncs > 0);
  CHECK(CacheId() == before);
}

TEST_CASE_METHOD(Granted,
                 "a snapshot syncs its volume before it clones it, which holds up its I/O and a fence") {
  REQUIRE(PlainInitiator::Login(connection).value()->Write(0, 'x'));
  REQUIRE(array->volumes().CreateSnapshot("s", volume).status() == absl::OkStatus());
  CHECK(clones == 1);
  CHECK(clones_of_unsynced == 0);
}

}  // namespace
}  // namespace lunkeeper::testing

// In place of libc's.
extern "C" int fsync(int fd) { return lunkeeper::testing::Sync(fd, SYS_fsync); }
extern "C" int fdatasync(int fd) { return lunkeeper::testing::Sync(fd, SYS_fdatasync); }
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  std::va_list rest;
  va_start(rest, request);
  const long argument = va_arg(rest, long);
  va_end(rest);
  if (request == FICLONE && lunkeeper::testing::IsWatched(static_cast<int>(argument))) {
    ++lunkeeper::testing::clones;
    if (lunkeeper::testing::syncs == 0) ++lunkeeper::testing::clones_of_unsynced;
  }
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}
