// An array of several tgtds: who serves what, and that a fence, a death, a restart and a pause reach all.
// Needs root.

#include "devices/array/tgt/tgt_servers.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "devices/array/tgt/pool.h"
#include "devices/array/tgt/stop_tgtd.h"
#include "devices/array/tgt/target_number.h"
#include "devices/array/tgt/testing/several_tgtds.h"
#include "devices/array/tgt/tgt_client.h"
#include "devices/array/tgt/tgtd_lock.h"
#include "devices/array/tgt/write_barrier.h"

namespace lunkeeper::testing {
namespace {

TEST_CASE_METHOD(Several, "grants are spread over the tgtds, each at its own port and in one tgtd alone") {
  std::map<int, int> grants;
  const std::vector<Used> used = UseSome(6);
  for (const Used& each : used) {
    ++grants[TgtdOf(each.connection)];
    CHECK(CountServers(each.connection) == 1);
    CHECK(each.session->Read(1) == 'x');
  }
  CHECK(grants == std::map<int, int>{{0, 2}, {1, 2}, {2, 2}});
  CHECK(Cluster()->grants().ListSessions()->size() == 6);
  CHECK(array->MeasureGrants()->sessions == 6);
  CHECK(array->MeasureGrants()->grants_of_tgtds == std::vector<uint64_t>{2, 2, 2});
  CHECK(array->CheckTgtd() == absl::OkStatus());
}

TEST_CASE_METHOD(Several, "a fence ends what a node has in every tgtd, and nothing of another node") {
  const std::vector<Used> used = UseSome(5), others = UseSome(4, kOther);
  const auto view = Cluster();
  REQUIRE(Fence(*view, kNode) == absl::OkStatus());
  for (const Used& each : used) {
    CHECK_FALSE(each.session->Write(1, 'y'));
    CHECK_FALSE(PlainInitiator::Login(each.connection).ok());
    CHECK(CountServers(each.connection) == 0);
  }
  for (const Used& each : others) CHECK(each.session->Write(1, 'y'));
  CHECK(view->grants().ListGrants({})->size() == 4);
}

TEST_CASE_METHOD(Several,
                 "a fence is not over while one tgtd does not answer, and frees what is in the others") {
  array.reset();
  options.drain_timeout = absl::Seconds(1);
  REQUIRE(Open() == absl::OkStatus());
  const std::vector<Used> used = UseSome(3);
  const int held = TgtdOf(used[2].connection);
  const pid_t tgtd = Tgtd(held);
  ::kill(tgtd, SIGSTOP);
  const auto view = Cluster();
  CHECK(absl::IsDeadlineExceeded(Fence(*view, kNode)));
  const auto left = view->grants().ListGrants({});
  REQUIRE(left->size() == 1);
  CHECK(left->front().volume == used[2].volume);
  CHECK_FALSE(used[0].session->Write(1, 'y'));
  ::kill(tgtd, SIGCONT);
  CHECK(Eventually([&] { return Fence(*view, kNode).ok(); }, absl::Minutes(1)));
  CHECK_FALSE(used[2].session->Write(1, 'y'));
}

TEST_CASE_METHOD(Several, "a tgtd that dies takes its own sessions alone, and has its targets back") {
  const std::vector<Used> used = UseSome(3);
  const int dying = TgtdOf(used[1].connection);
  const pid_t before = Tgtd(dying);
  REQUIRE(::kill(before, SIGKILL) == 0);
  CHECK(Eventually([&] { return PlainInitiator::Login(used[1].connection).ok(); }, absl::Minutes(1)));
  CHECK(Tgtd(dying) != before);
  CHECK(used[0].session->Write(1, 'y'));
  CHECK(used[2].session->Write(1, 'y'));
  CHECK(array->MeasureGrants()->tgtd_deaths == 1);
}

TEST_CASE_METHOD(Several, "a further tgtd that hangs is reported") {
  REQUIRE(array->CheckTgtd() == absl::OkStatus());
  const pid_t tgtd = Tgtd(2);
  ::kill(tgtd, SIGSTOP);
  CHECK(Eventually([&] { return absl::IsUnavailable(array->CheckTgtd()); }, absl::Minutes(1)));
  CHECK(absl::StrContains(array->CheckTgtd().message(), absl::StrCat(tgtd)));
  CHECK(array->MeasureGrants()->sessions == std::nullopt);
  ::kill(tgtd, SIGCONT);
}

TEST_CASE_METHOD(Several, "the next agent takes all tgtds over with their sessions") {
  const std::vector<Used> used = UseSome(4);
  std::set<pid_t> before, after;
  for (int number = 0; number < kTgtds; ++number) before.insert(Tgtd(number));
  REQUIRE(Open() == absl::OkStatus());
  for (int number = 0; number < kTgtds; ++number) after.insert(Tgtd(number));
  CHECK(before == after);
  for (const Used& each : used) CHECK(each.session->Write(1, 'y'));
}

TEST_CASE("an array of one tgtd becomes one of several, and no session notices") {
  Several fixture(1);
  const std::vector<Used> used = fixture.UseSome(2);
  CHECK(fixture.Tgtd(1) == 0);
  fixture.options.tgtds = kTgtds;
  REQUIRE(fixture.Open() == absl::OkStatus());
  for (const Used& each : used) {
    CHECK(fixture.TgtdOf(each.connection) == 0);
    CHECK(each.session->Write(1, 'y'));
  }
  std::set<int> next;
  for (const Used& each : fixture.UseSome(kTgtds, kOther)) next.insert(fixture.TgtdOf(each.connection));
  CHECK(next == std::set<int>{0, 1, 2});
}

TEST_CASE_METHOD(Several,
                 "fewer tgtds get the new grants, and those with older ones go on until they are gone") {
  const std::vector<Used> used = UseSome(3);
  options.tgtds = 1;
  REQUIRE(Open() == absl::OkStatus());
  for (const Used& each : used) CHECK(each.session->Write(1, 'y'));
  CHECK(TgtdOf(Use("next", kOther).connection) == 0);
  const auto view = Cluster();
  REQUIRE(Fence(*view, kNode) == absl::OkStatus());
  for (const Used& each : used) CHECK_FALSE(each.session->Write(1, 'z'));
  SECTION("an agent that starts while they live looks after them still") {
    REQUIRE(Open() == absl::OkStatus());
    const pid_t last = Tgtd(2);
    const auto is_another = [&] {
      const pid_t now = Tgtd(2);
      return now != 0 && now != last;
    };
    REQUIRE(::kill(last, SIGKILL) == 0);
    CHECK(Eventually(is_another, absl::Minutes(1)));
  }
  SECTION("and after the host's next start they are not there") {
    Close();
    REQUIRE(StopPoolTgtd({options.pool_dir, true}, absl::Minutes(1)) == absl::OkStatus());
    REQUIRE(Open() == absl::OkStatus());
    CHECK(Tgtd(0) != 0);
    CHECK(Tgtd(1) == 0);
    CHECK(Tgtd(2) == 0);
  }
}

TEST_CASE_METHOD(Several, "what was granted in more tgtds is served after the host's next start") {
  std::vector<Used> used = UseSome(3);
  Close();
  REQUIRE(StopPoolTgtd({options.pool_dir, true}, absl::Minutes(1)) == absl::OkStatus());
  options.tgtds = 1;
  REQUIRE(Open() == absl::OkStatus());
  for (const Used& each : used) CHECK((*PlainInitiator::Login(each.connection))->Read(1) == 'x');
  CHECK(Fence(*Cluster(), kNode) == absl::OkStatus());
}

// A catalogue that was set back may say so.
TEST_CASE_METHOD(Several, "a target in another tgtd than its grant's is served by one tgtd afterwards") {
  const std::vector<Used> used = UseSome(2);
  const int was = TgtdOf(used[0].connection);
  Close();
  ChangeCatalogue(absl::StrCat("UPDATE grants SET tgtd = 2 WHERE volume = '", used[0].volume.value(), "'"));
  REQUIRE(was != 2);
  REQUIRE(Open() == absl::OkStatus());
  CHECK(CountServers(used[0].connection) == 1);
  CHECK_FALSE(used[0].session->Write(1, 'y'));
  CHECK(used[1].session->Write(1, 'y'));
  const auto view = Cluster();
  REQUIRE(Fence(*view, kNode) == absl::OkStatus());
  CHECK(CountServers(used[0].connection) == 0);
}

TEST_CASE_METHOD(Several, "a stop of a pool's tgtds asks all of them, and ends all or none") {
  const Used used = Use("v");
  REQUIRE(TgtdOf(used.connection) == 1);  // the others have nothing to lose
  Close();
  const absl::Status refused = StopPoolTgtd({options.pool_dir, false}, absl::Minutes(1));
  CHECK(absl::IsFailedPrecondition(refused));
  for (int number = 0; number < kTgtds; ++number) CHECK(Tgtd(number) != 0);
  REQUIRE(StopPoolTgtd({options.pool_dir, true}, absl::Minutes(1)) == absl::OkStatus());
  for (int number = 0; number < kTgtds; ++number) CHECK(Tgtd(number) == 0);
  REQUIRE(Open() == absl::OkStatus());
  CHECK((*PlainInitiator::Login(used.connection))->Read(1) == 'x');
}

// T: stopped.
char StateOf(pid_t process) {
  std::ifstream file(absl::StrCat("/proc/", process, "/stat"));
  std::string line;
  std::getline(file, line);
  return line[line.rfind(')') + 2];
}

// The tgtds of an array, without the array.
struct ServersAlone {
  ServersAlone() {
    REQUIRE(servers->StartServing() == absl::OkStatus());
    for (int number = 0; number < kTgtds; ++number)
      processes.push_back(TgtdLock(TgtdLockPath(fixture.options.pool_dir, number)).FindHolder());
  }
  std::string States() const {
    std::string states;
    for (const pid_t process : processes) states += StateOf(process);
    return states;
  }

  ArrayFixture fixture{"", kTgtds};
  const std::unique_ptr<Pool> pool = Pool::Open(fixture.options.pool_dir).value();
  const std::unique_ptr<Catalogue> catalogue = Catalogue::Open(pool->CataloguePath(), "a1").value();
  VolumeGates gates;
  const std::unique_ptr<TgtServers> servers =
      TgtServers::Make({.array = "a1",
                        .cache_id = "cache",
                        .directory = fixture.options.pool_dir,
                        .first = {.control_port = fixture.options.control_port,
                                  .portals = fixture.options.portals,
                                  .output_path = fixture.options.tgtd_output_path,
                                  .lock_path = {}},
                        .tgtds = kTgtds,
                        .drain_timeout = absl::Seconds(1),
                        .list_heartbeat_luns = nullptr,
                        .tick = nullptr},
                       *catalogue, *pool, gates)
          .value();
  std::vector<pid_t> processes;
};

const std::string kAllStand(kTgtds, 'T');

TEST_CASE_METHOD(ServersAlone, "a throttle holds every tgtd again and again, each time for a moment") {
  int held = 0;
  // Again on a machine so busy that the throttle's time is over too soon.
  for (int round = 0; round < 5 && held < 3; ++round) {
    WriteThrottle throttle(*servers);
    throttle.StartAfter(absl::ZeroDuration());
    held = 0;
    for (bool stood = false; held < 3 && throttle.IsSlow();) {
      const std::string states = States();
      if (states != kAllStand && states.find('T') != states.npos) continue;
      held += stood && states != kAllStand;
      stood = states == kAllStand;
    }
    throttle.Stop();
    CHECK(States().find('T') == std::string::npos);
    CHECK(throttle.stood() > TgtdPause::Clock::duration::zero());
  }
  CHECK(held == 3);
}

TEST_CASE("a throttle leaves a ninth of the time to I/O, also where it takes long to hold all tgtds") {
  CHECK(WriteThrottle::RestAfter(absl::Milliseconds(80)) == absl::Milliseconds(10));
  CHECK(WriteThrottle::RestAfter(absl::Milliseconds(800)) == absl::Milliseconds(100));
  CHECK(WriteThrottle::RestAfter(absl::ZeroDuration()) == absl::Milliseconds(10));  // none could be held
}

TEST_CASE_METHOD(ServersAlone, "a throttle that is stopped before its time has held nobody") {
  WriteThrottle throttle(*servers);
  throttle.StartAfter(absl::Minutes(1));
  throttle.Stop();
  CHECK(!throttle.IsSlow());
  CHECK(throttle.stood() == TgtdPause::Clock::duration::zero());
}

TEST_CASE_METHOD(ServersAlone, "a throttle that nobody stops ends by itself") {
  WriteThrottle throttle(*servers);
  throttle.StartAfter(absl::ZeroDuration());
  CHECK(Eventually([&] { return !throttle.IsSlow(); }, absl::Minutes(1)));
  CHECK(States().find('T') == std::string::npos);
}

TEST_CASE_METHOD(ServersAlone, "a write barrier holds every tgtd, and fails if one was let go meanwhile") {
  const bool let_go = GENERATE(false, true);
  bool stood = false;
  const auto work = [&](TgtdPause::Clock::time_point) {
    stood |= States() == kAllStand;
    if (let_go) ::kill(processes.back(), SIGCONT);
    return absl::OkStatus();
  };
  WriteBarrier barrier(*servers);
  absl::Status done = absl::UnknownError("");
  // Again on a machine so busy that tgtd is let go before the work is done.
  for (int round = 0; round < 5 && !done.ok(); ++round)
    done = barrier.RunInside([](WriteThrottle&) { return absl::OkStatus(); }, work);
  INFO(done);
  CHECK(done.ok() == !let_go);
  CHECK(stood);
  CHECK(States().find('T') == std::string::npos);
}

// Each number is a target's in one of the tgtds alone, so a call that is late by a whole round meets no
// other.
TEST_CASE_METHOD(Several,
                 "numbers that begin anew are no number in use of any tgtd, also for the next agent") {
  const std::vector<Used> before = UseSome(3);
  const auto open_anew = [&] {
    Close();
    ChangeCatalogue(absl::StrCat("UPDATE meta SET generation = MAX(generation, ", kTargetNumbers - 2, ")"));
    REQUIRE(Open() == absl::OkStatus());
  };
  open_anew();
  const std::vector<Used> after = UseSome(6, kOther);
  open_anew();
  const auto grants = Cluster()->grants().ListGrants({});
  std::set<int32_t> numbers;
  for (const Grant& grant : grants.value()) CHECK(numbers.insert(TargetNumber(grant.generation)).second);
  CHECK(numbers.size() == 9);
  CHECK(*numbers.rbegin() == static_cast<int32_t>(kTargetNumbers));
  for (const Used& each : after) CHECK(CountServers(each.connection) == 1);
  // The old ones end, and are the only ones that do.
  const auto view = Cluster();
  for (const Used& each : before)
    REQUIRE(view->grants().ReleaseGrant(each.volume, kNode, GrantOwner::kNode, kAnyGeneration).ok());
  for (const Used& each : after) CHECK(each.session->Write(1, 'y'));
  for (const Used& each : before) CHECK_FALSE(each.session->Write(1, 'y'));
}

TEST_CASE("a tgtd's portal has the port that is as much higher as its number") {
  CHECK(PortalOfTgtd("10.0.0.5:3260", 0).value() == "10.0.0.5:3260");
  CHECK(PortalOfTgtd("10.0.0.5:3260", 7).value() == "10.0.0.5:3267");
  CHECK(PortalOfTgtd("[fd00::5]:3260", 1).value() == "[fd00::5]:3261");
  CHECK_FALSE(PortalOfTgtd("10.0.0.5:65535", 1).ok());
  CHECK_FALSE(PortalOfTgtd("10.0.0.5", 1).ok());
}

}  // namespace
}  // namespace lunkeeper::testing
