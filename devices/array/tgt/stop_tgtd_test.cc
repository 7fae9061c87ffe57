// The end of a pool's tgtd by hand, with real ones. Needs root.
#include "devices/array/tgt/stop_tgtd.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/wall_clock.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/tgt_client.h"
#include "devices/array/tgt/tgtd_lock.h"

namespace lunkeeper::testing {
namespace {

const NodeId kNode("db.0000000000000001");

// An array with a volume that a node has; the agent is stopped.
struct Stopped {
  explicit Stopped(const std::string& pool_dir = "") : fixture(pool_dir) {
    REQUIRE(fixture.Open() == absl::OkStatus());
    const auto array = fixture.Cluster();
    volume = array->volumes().CreateVolume(Spec("v", 16)).value().id;
    const auto grant = array->grants().AcquireGrant({.volume = volume, .node = kNode}, absl::ZeroDuration());
    connection = grant.value().connection;
    session = PlainInitiator::Login(connection).value();
    REQUIRE(session->Write(1, 'x'));
    fixture.Close();
  }
  absl::Status Stop(bool with_sessions = false) const {
    return StopPoolTgtd({fixture.options.pool_dir, with_sessions}, absl::Minutes(1));
  }
  pid_t Tgtd() const { return TgtdProcess(fixture.options.control_port); }

  ArrayFixture fixture;
  VolumeId volume;
  Connection connection;
  std::unique_ptr<PlainInitiator> session;
};

TEST_CASE("a stopped agent's tgtd is ended, its pool can be unmounted, and all is there afterwards") {
  TempDir directory;
  const LoopMount mount(directory.path(), "400M");
  Stopped stopped(mount.path());
  const std::string cache = stopped.session->Identity().product;
  stopped.session.reset();
  REQUIRE(stopped.Stop(true) == absl::OkStatus());
  CHECK(stopped.Tgtd() == 0);
  CHECK(stopped.Stop() == absl::OkStatus());
  mount.MountAnew();
  REQUIRE(stopped.fixture.Open() == absl::OkStatus());
  stopped.session = PlainInitiator::Login(stopped.connection).value();
  CHECK(stopped.session->Read(1) == 'x');
  CHECK(stopped.session->Identity().product == cache);  // else a device with unflushed writes would fail
}

TEST_CASE("a tgtd whose lock file was removed is named, and nothing is said to be flushed") {
  TempDir directory;
  const LoopMount mount(directory.path(), "400M");
  Stopped stopped(mount.path());
  const pid_t tgtd = stopped.Tgtd();
  std::filesystem::remove(mount.path() + "/tgtd.lock");
  const absl::Status refused = stopped.Stop(true);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains(absl::StrCat("kill -9 ", tgtd)));
  CHECK_FALSE(std::filesystem::exists(mount.path() + "/cache_id.flushed"));
  CHECK(stopped.session->Write(2, 'y'));
}

TEST_CASE("a pool whose file system has failed is not stopped in silence") {
  TempDir directory;
  const LoopMount mount(directory.path(), "400M");
  Run("touch " + mount.path() + "/catalogue.db " + mount.path() + "/lock && sync -f " + mount.path());
  Run("xfs_io -x -c shutdown " + mount.path());
  const absl::Status refused = StopPoolTgtd({mount.path(), true}, absl::Minutes(1));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("fuser --mount " + mount.path()));
}

TEST_CASE("a tgtd that was ended for good is not started by the agent that misses it, until it may be") {
  ArrayFixture fixture;
  REQUIRE(fixture.Open() == absl::OkStatus());
  const TgtdLock lock(TgtdLockPath(fixture.options.pool_dir, 0));
  const pid_t before = lock.FindHolder();
  REQUIRE(before != 0);
  {
    const std::vector<UniqueFd> locks = KillTgtdsForGood(fixture.options.pool_dir, absl::Minutes(1));
    REQUIRE(locks.size() == 1);
    CHECK(Eventually([&] { return !fixture.array->CheckTgtd().ok(); }, absl::Minutes(1)));
    CHECK(fixture.array->MeasureGrants()->tgtd_deaths == 1);  // none was started, and killed in its turn
    absl::SleepFor(absl::Seconds(1));                         // in which the agent tries
    CHECK(lock.FindHolder() == ::getpid());
  }
  CHECK(Eventually([&] { return fixture.array->CheckTgtd().ok(); }, absl::Minutes(1)));
  CHECK(lock.FindHolder() != before);
}

TEST_CASE("a tgtd that cannot be ended for good keeps no other one alive") {
  ArrayFixture fixture("", 2);
  REQUIRE(fixture.Open() == absl::OkStatus());
  const std::string& pool = fixture.options.pool_dir;
  std::vector<UniqueFd> locks = KillTgtdsForGood(pool, absl::Minutes(1));
  REQUIRE(locks.size() == 2);
  locks.pop_back();
  // The one whose lock is free is started again, and the other one's lock cannot be taken.
  int number = 0;
  pid_t before = 0;
  const auto is_back = [&] {
    for (number = 0; number < 2; ++number) {
      before = TgtdLock(TgtdLockPath(pool, number)).FindHolder();
      if (before != 0 && before != ::getpid()) return true;
    }
    return false;
  };
  REQUIRE(Eventually(is_back, absl::Minutes(1)));
  const std::vector<UniqueFd> more = KillTgtdsForGood(pool, absl::Seconds(1));
  CHECK(Eventually([&] { return TgtdLock(TgtdLockPath(pool, number)).FindHolder() != before; }));
}

// As while a gateway ends that has lost its array.
TEST_CASE("a clock that is set back does not prolong the wait for a tgtd that cannot be ended") {
  const TempDir pool;
  UniqueFd held = TgtdLock(TgtdLockPath(pool.path(), 0)).TakeLock().value();
  std::optional<WallClockAhead> ahead(absl::Hours(1));
  AwaitAbseilsClock();
  std::atomic<bool> ended = false;
  std::jthread ending([&] {
    KillTgtdsForGood(pool.path(), absl::Seconds(5));
    ended = true;
  });
  ahead.reset();
  AwaitAbseilsClock();
  CHECK(Eventually([&] { return ended.load(); }));
  held.Reset();
}

TEST_CASE("a volume in use keeps its tgtd, unless somebody says that it does not matter") {
  Stopped stopped;
  const absl::Status refused = stopped.Stop();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains(stopped.volume.value()));
  CHECK(stopped.session->Write(1, 'y'));
  CHECK(stopped.Stop(true) == absl::OkStatus());
  CHECK_FALSE(stopped.session->Write(1, 'z'));
}

// It may be about to come back: its data path reconnects for two minutes.
TEST_CASE("a volume that a node has keeps its tgtd while the node is away, until it is released") {
  Stopped stopped;
  stopped.session.reset();
  const TgtClient tgtd(stopped.fixture.options.control_port);
  REQUIRE(Eventually([&] { return tgtd.ReadStatistics()->empty(); }));
  const absl::Status refused = stopped.Stop();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains(stopped.volume.value()));
  REQUIRE(stopped.fixture.Open() == absl::OkStatus());
  REQUIRE(stopped.fixture.Cluster()
              ->grants()
              .ReleaseGrant(stopped.volume, kNode, GrantOwner::kNode, kAnyGeneration)
              .ok());
  stopped.fixture.Close();
  CHECK(stopped.Stop() == absl::OkStatus());
  CHECK(stopped.Tgtd() == 0);
}

TEST_CASE("a tgtd that does not say what is in use is ended only if that does not matter") {
  Stopped stopped;
  const pid_t tgtd = stopped.Tgtd();
  ::kill(tgtd, SIGSTOP);
  CHECK(absl::IsUnavailable(stopped.Stop()));
  CHECK(::kill(tgtd, 0) == 0);
  CHECK(stopped.Stop(true) == absl::OkStatus());
  CHECK(stopped.Tgtd() == 0);
}

TEST_CASE("no tgtd is ended below a running agent, or of another pool") {
  Stopped stopped;
  const Stopped other;
  CHECK(stopped.Stop(true) == absl::OkStatus());
  CHECK(other.session->Write(1, 'y'));
  REQUIRE(stopped.fixture.Open() == absl::OkStatus());
  const pid_t tgtd = stopped.Tgtd();
  CHECK(absl::IsFailedPrecondition(stopped.Stop(true)));
  CHECK(stopped.Tgtd() == tgtd);
}

// A process that is older than what the test starts later, and then has a file open, as a backup or a `tail`
// has. Ended with the test.
class FileReader {
 public:
  explicit FileReader(const std::string& path) : pid_(::fork()) {
    if (pid_ != 0) return;
    while (::open(path.c_str(), O_RDONLY) < 0) ::usleep(10'000);
    while (true) ::pause();
  }
  ~FileReader() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  bool Runs() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }
  bool HasOpen(const std::string& path) const {
    std::error_code error;
    for (std::filesystem::directory_iterator at(absl::StrCat("/proc/", pid_, "/fd"), error), end;
         !error && at != end; at.increment(error)) {
      std::error_code closed_meanwhile;
      if (std::filesystem::read_symlink(at->path(), closed_meanwhile) == path) return true;
    }
    return false;
  }

 private:
  const pid_t pid_;
};

TEST_CASE("a process that only reads the lock's file is not taken for tgtd") {
  TempDir directory;
  const std::string pool = directory / "pool", lock = pool + "/tgtd.lock";
  const FileReader reader(lock);
  Stopped stopped(pool);
  REQUIRE(Eventually([&] { return reader.HasOpen(lock); }));
  const absl::Status taken = TgtdLock(lock).TakeLock().status();
  CHECK_THAT(std::string(taken.message()), Catch::Contains(absl::StrCat("process ", stopped.Tgtd(), " ")));
  CHECK(stopped.Stop(true) == absl::OkStatus());
  CHECK(stopped.Tgtd() == 0);
  CHECK(reader.Runs());
}

// Another tgtd answers at the place where one has its socket, as in a mount namespace that is not its own.
class WrongSocket {
 public:
  WrongSocket(int control_port, int answers) : path_(Path(control_port)) {
    std::filesystem::rename(path_, path_ + ".moved");
    std::filesystem::create_symlink(Path(answers), path_);
  }
  ~WrongSocket() { std::filesystem::rename(path_ + ".moved", path_); }
  WrongSocket(const WrongSocket&) = delete;
  WrongSocket& operator=(const WrongSocket&) = delete;

 private:
  static std::string Path(int port) { return absl::StrCat("/var/run/tgtd/socket.", port); }
  const std::string path_;
};

TEST_CASE("a tgtd is not ended for what another one says about its volumes") {
  ArrayFixture idle;
  REQUIRE(idle.Open() == absl::OkStatus());
  Stopped stopped;
  {
    const WrongSocket elsewhere(stopped.fixture.options.control_port, idle.options.control_port);
    const absl::Status refused = stopped.Stop();
    CHECK(absl::IsUnavailable(refused));
    CHECK_THAT(std::string(refused.message()), Catch::Contains("--with-sessions"));
  }
  CHECK(stopped.session->Write(1, 'y'));
  CHECK(TgtdProcess(idle.options.control_port) != 0);
}

TEST_CASE("a directory that is no pool stays as it is") {
  TempDir directory;
  CHECK(absl::IsNotFound(StopPoolTgtd({directory.path()}, absl::Minutes(1))));
  CHECK(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace lunkeeper::testing
