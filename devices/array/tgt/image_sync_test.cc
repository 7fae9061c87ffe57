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
#include <thread>

#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/testing/held_at.h"
#include "devices/array/tgt/tgtd_lock.h"

namespace lunkeeper::testing {
namespace {

const NodeId kA("node-a.1");
constexpr uint64_t kLarge = 32 << 20;

// The file of the volume; 0: none.
std::atomic<ino_t> watched{0};
// Its next sync fails, which the kernel tells once.
std::atomic<bool> fails_once{false};
// An error of writing back is noted for everybody who has the file open and asks for a range of it.
std::atomic<int> failed_ranges{0};
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

int SyncRange(int fd, off64_t offset, off64_t bytes, unsigned flags) {
  if (IsWatched(fd) && failed_ranges > 0) {
    --failed_ranges;
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_sync_file_range, fd, offset, bytes, flags));
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
    failed_ranges = 0;
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

// The session whose flush met it may have ended, and its node repeats the flush, with success.
TEST_CASE_METHOD(Granted, "an error that the kernel tells of an image in use is shown at the next login") {
  const std::string before = CacheId();
  if (GENERATE(false, true)) RestartAgent();
  failed_ranges = 1;
  CHECK(Eventually([&] { return CacheId() != before; }));
  const std::string after = CacheId();
  CHECK(after.size() == 16);
  REQUIRE(Grow() == absl::OkStatus());
  CHECK(CacheId() == after);
}

TEST_CASE_METHOD(Granted, "an error of the flush that a growth has cut is shown by the LUN that it makes") {
  const std::string before = CacheId();
  const HeldAt paused("array.target.paused");
  paused.Arm();
  absl::Status grown;
  std::jthread growth([&] { grown = Grow(); });
  REQUIRE(Eventually([&] { return paused.IsReached(); }));
  failed_ranges = 1;
  paused.LetGo();
  growth.join();
  CHECK(grown == absl::OkStatus());
  CHECK(CacheId() != before);
}

TEST_CASE_METHOD(Granted, "after an error while a group of snapshots is made a node learns of it, too") {
  const std::string before = CacheId();
  failed_ranges = 1000;
  CHECK_FALSE(array->groups().CreateGroup("g", {volume}).ok());
  failed_ranges = 0;
  CHECK(Eventually([&] { return CacheId() != before; }));
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
extern "C" int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags) {
  return lunkeeper::testing::SyncRange(fd, offset, bytes, flags);
}
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
