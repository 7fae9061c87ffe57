// An array of several tgtds, of which one cannot serve, or whose names another array takes. Needs root.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "devices/array/tgt/stop_tgtd.h"
#include "devices/array/tgt/testing/several_tgtds.h"
#include "devices/array/tgt/testing/taken_port.h"
#include "devices/array/tgt/tgt_client.h"
#include "devices/array/tgt/tgtd_lock.h"

namespace lunkeeper::testing {
namespace {

void RemoveSocket(int control_port) {
  const std::string socket = absl::StrCat("/var/run/tgtd/socket.", control_port);
  REQUIRE(std::filesystem::remove(socket));
  REQUIRE(std::filesystem::remove(socket + ".lock"));
}

// Once the files of its socket are gone, another array's tgtd may take the name of a tgtd that is alive.
TEST_CASE_METHOD(Several,
                 "a fence takes no answer of another array's tgtd, and does nothing to the targets there") {
  array.reset();
  options.drain_timeout = absl::Seconds(1);
  REQUIRE(Open() == absl::OkStatus());
  const Used used = Use("v");
  const int number = TgtdOf(used.connection);
  REQUIRE(number > 0);
  RemoveSocket(options.control_port + number);
  ArrayFixture other;
  other.options.control_port = options.control_port + number;
  REQUIRE(other.Open() == absl::OkStatus());
  const auto their_view = other.Cluster();
  const VolumeId theirs = their_view->volumes().CreateVolume(Spec("v", 16)).value().id;
  const auto grant =
      their_view->grants().AcquireGrant({.volume = theirs, .node = kNode}, absl::ZeroDuration());
  REQUIRE(grant.ok());
  REQUIRE(grant->connection.target.value().back() == used.connection.target.value().back());  // its number
  const auto session = PlainInitiator::Login(grant->connection).value();
  const auto view = Cluster();
  CHECK(absl::IsDeadlineExceeded(Fence(*view, kNode)));
  CHECK(used.session->Write(1, 'y'));  // what a fence that was over would have ended
  CHECK(session->Write(1, 'y'));
  CHECK(Eventually([&] { return absl::IsUnavailable(array->CheckTgtd()); }, absl::Minutes(1)));
}

TEST_CASE_METHOD(Several, "a start in which the first tgtd could not serve can be repeated") {
  const auto view = Cluster();
  REQUIRE(view->volumes().CreateVolume(Spec("v", 16)).ok());
  Close();
  REQUIRE(StopPoolTgtd({options.pool_dir, true}, absl::Minutes(1)) == absl::OkStatus());
  std::ofstream(options.seen_sequence_path) << "1000";  // so this catalogue counts as restored
  auto taken = std::make_unique<TakenPort>(PortOf(0));
  REQUIRE(Open() == absl::OkStatus());
  CHECK_THAT(std::string(array->AcceptRestore().message()),
             Catch::Contains(absl::StrCat("127.0.0.1:", PortOf(0))));
  taken.reset();
  REQUIRE(array->AcceptRestore() == absl::OkStatus());
  for (const Used& each : UseSome(3)) CHECK(each.session->Write(1, 'y'));
}

// The agent is started again, after an upgrade or a crash of the host.
TEST_CASE_METHOD(Several,
                 "an agent serves without a further tgtd that cannot start, and with it once it can") {
  const std::vector<Used> used = UseSome(3);
  const int number = TgtdOf(used[0].connection);
  REQUIRE(number > 0);
  Close();
  REQUIRE(StopPoolTgtd({options.pool_dir, true}, absl::Minutes(1)) == absl::OkStatus());
  auto taken = std::make_unique<TakenPort>(PortOf(number));
  REQUIRE(Open() == absl::OkStatus());
  CHECK_THAT(std::string(array->CheckTgtd().message()), Catch::Contains(used[0].connection.portal));
  for (int each = 0; each < kTgtds; ++each)
    CHECK(array->CheckEachTgtd()[static_cast<size_t>(each)].ok() == (each != number));
  for (size_t each : {1, 2}) CHECK((*PlainInitiator::Login(used[each].connection))->Read(1) == 'x');
  CHECK(TgtdOf(Use("new", kOther).connection) != number);
  // Its targets are there, and only its portal is not: a fence ends the grants in it too.
  const auto view = Cluster();
  CHECK(Eventually([&] { return Fence(*view, kNode).ok(); }, absl::Minutes(1)));
  CHECK(view->grants().ListGrants({.volume = {}, .node = kNode})->empty());
  taken.reset();
  CHECK(Eventually([&] { return array->CheckTgtd().ok(); }, absl::Minutes(1)));
  for (const Used& each : UseSome(3, kOther)) CHECK(each.session->Write(1, 'y'));
}

TEST_CASE_METHOD(Several, "portals of which two tgtds would have the same port are refused") {
  options.portals.push_back(absl::StrCat("127.0.0.1:", PortOf(1)));
  const absl::Status refused = Open();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains(options.portals[1]));
}

// A restore that removes what the copy did not have, of a copy from before there were several.
TEST_CASE_METHOD(Several, "a tgtd whose lock was removed from the pool keeps the agent from starting") {
  const std::vector<Used> used = UseSome(3);
  const pid_t last = Tgtd(2);
  Close();
  ChangeCatalogue("DELETE FROM grants");
  REQUIRE(std::filesystem::remove(TgtdLockPath(options.pool_dir, 2)));
  options.tgtds = 1;
  const absl::Status refused = Open();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains(absl::StrCat("kill -9 ", last)));
  REQUIRE(::kill(last, SIGKILL) == 0);
  CHECK(Eventually([&] { return Open().ok(); }, absl::Minutes(1)));
  for (const Used& each : used) CHECK_FALSE(each.session->Write(1, 'y'));
}

// Its control port is the first one's and its number, and the option names the first one's.
TEST_CASE_METHOD(Several, "a further tgtd that is in the way says which option leads back to it") {
  UseSome(3);
  const int was = options.control_port;
  Close();
  REQUIRE(::kill(Tgtd(0), SIGKILL) == 0);
  REQUIRE(Eventually([&] { return Tgtd(0) == 0; }));
  RemoveSocket(was);
  options.control_port = FreeControlPort(kTgtds);
  const absl::Status refused = Open();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains(absl::StrCat("--tgt-control-port=", was, ",")));
}

// Three volumes in three tgtds, of which one hangs.
struct OneHangs : Several {
  ~OneHangs() {
    for (int number = 0; number < kTgtds; ++number)
      if (const pid_t tgtd = Tgtd(number); tgtd != 0) ::kill(tgtd, SIGCONT);
  }
  // Of its session; nothing: none is seen.
  std::optional<uint64_t> CountWrites(const VolumeId& volume) {
    const auto seen = view->grants().ListSeenSessions();
    REQUIRE(seen.status() == absl::OkStatus());
    for (const GrantSession& session : seen->sessions)
      if (session.volume == volume) return session.writes;
    return std::nullopt;
  }
  const std::vector<Used> used = UseSome(3);
  const std::unique_ptr<Array> view = Cluster();
};

TEST_CASE_METHOD(
    OneHangs, "while a further tgtd hangs the sessions of the others are seen, and whose are not is said") {
  const int number = TgtdOf(used[0].connection);
  REQUIRE(number > 0);
  CHECK(view->grants().ListSeenSessions()->unseen.empty());
  ::kill(Tgtd(number), SIGSTOP);
  const auto seen = view->grants().ListSeenSessions();
  REQUIRE(seen.status() == absl::OkStatus());
  CHECK(seen->sessions.size() == 2);
  REQUIRE(seen->unseen.size() == 1);
  CHECK(seen->unseen[0].why == absl::StrCat("its tgtd ", number, " does not answer"));
  CHECK(seen->unseen[0].grants == std::vector<std::pair<VolumeId, NodeId>>{{used[0].volume, kNode}});
  for (size_t each : {1, 2}) {
    const auto before = CountWrites(used[each].volume);
    CHECK(used[each].session->Write(1, 'y'));
    CHECK(CountWrites(used[each].volume) > before);
  }
  // A call for all of them does not get a part.
  CHECK(absl::IsUnavailable(view->grants().ListSessions().status()));
  ::kill(Tgtd(number), SIGCONT);
  CHECK(Eventually([&] { return view->grants().ListSeenSessions()->unseen.empty(); }, absl::Minutes(1)));
  CHECK(CountWrites(used[0].volume).has_value());
}

// An idle node shows itself by its heartbeats alone.
TEST_CASE_METHOD(OneHangs, "while the first tgtd hangs, which has the heartbeats, nothing is seen") {
  ::kill(Tgtd(0), SIGSTOP);
  CHECK(absl::IsUnavailable(view->grants().ListSeenSessions().status()));
  ::kill(Tgtd(0), SIGCONT);
  CHECK(Eventually([&] { return view->grants().ListSeenSessions().ok(); }, absl::Minutes(1)));
}

// Three volumes in three tgtds, of which one, not the first, cannot be started again.
struct OneIsDown : Several {
  OneIsDown() {
    REQUIRE(number > 0);
    REQUIRE(TgtClient(options.control_port + number).ClosePortal(portal) == absl::OkStatus());
    taken = std::make_unique<TakenPort>(PortOf(number));
    KillAndWait();
  }
  void KillAndWait() {
    const pid_t before = Tgtd(number);
    REQUIRE(::kill(before, SIGKILL) == 0);
    const auto says_why = [&] {
      const pid_t now = Tgtd(number);
      return now != 0 && now != before && absl::StrContains(array->CheckTgtd().message(), portal);
    };
    CHECK(Eventually(says_why, absl::Minutes(1)));
  }
  const std::vector<Used> used = UseSome(3);
  const int number = TgtdOf(used[0].connection);
  const std::string portal = used[0].connection.portal;
  std::unique_ptr<TakenPort> taken;
};

TEST_CASE_METHOD(OneIsDown,
                 "a tgtd that cannot be started again says which and why, and takes no other along") {
  KillAndWait();  // this one begins where no portal could be opened
  CHECK(used[1].session->Write(1, 'y'));
  CHECK(used[2].session->Write(1, 'y'));
  const auto grants = Cluster()->grants().ListGrants({});
  for (const Grant& grant : grants.value()) CHECK_FALSE(grant.connection.portal.empty());
  const auto seen = Cluster()->grants().ListSeenSessions();
  REQUIRE(seen.status() == absl::OkStatus());
  REQUIRE(seen->unseen.size() == 1);
  CHECK(seen->unseen[0].grants == std::vector<std::pair<VolumeId, NodeId>>{{used[0].volume, kNode}});
  taken.reset();
  CHECK(Eventually([&] { return array->CheckTgtd().ok(); }, absl::Minutes(1)));
  const auto again = PlainInitiator::Login(used[0].connection);
  REQUIRE(again.status() == absl::OkStatus());
  CHECK((*again)->Read(1) == 'x');
}

TEST_CASE_METHOD(OneIsDown, "volumes are granted and grow while one tgtd cannot be started again") {
  for (const Used& each : UseSome(4, kOther)) CHECK(TgtdOf(each.connection) != number);
  const auto view = Cluster();
  REQUIRE(view->volumes().ExpandVolume(used[1].volume, 32 << 20).status() == absl::OkStatus());
  CHECK((*PlainInitiator::Login(used[1].connection))->SizeBytes() == 32 << 20);
  CHECK(absl::IsUnavailable(view->volumes().ExpandVolume(used[0].volume, 32 << 20).status()));
  CHECK(absl::IsUnavailable(
      view->grants().AcquireGrant({.volume = used[0].volume, .node = kNode}, absl::ZeroDuration()).status()));
}

}  // namespace
}  // namespace lunkeeper::testing
