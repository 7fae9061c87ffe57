// The end of a pool's tgtd by hand, with real ones. Needs root.
#include "devices/array/tgt/stop_tgtd.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "devices/array/tgt/testing/array_fixture.h"

namespace lunkeeper::testing {
namespace {

const NodeId kNode("db.0000000000000001");

absl::Time InAMinute() { return absl::Now() + absl::Minutes(1); }

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
    return StopPoolTgtd({fixture.options.pool_dir, with_sessions}, InAMinute());
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
  stopped.session.reset();
  REQUIRE(Eventually([&] { return stopped.Stop() == absl::OkStatus(); }));  // tgtd notices the end soon
  CHECK(stopped.Tgtd() == 0);
  CHECK(stopped.Stop() == absl::OkStatus());
  mount.MountAnew();
  REQUIRE(stopped.fixture.Open() == absl::OkStatus());
  stopped.session = PlainInitiator::Login(stopped.connection).value();
  CHECK(stopped.session->Read(1) == 'x');
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

TEST_CASE("a directory that is no pool stays as it is") {
  TempDir directory;
  CHECK(absl::IsNotFound(StopPoolTgtd({directory.path()}, InAMinute())));
  CHECK(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace lunkeeper::testing
