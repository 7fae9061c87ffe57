// What the agent reports of a tgtd that hangs or dies, and of grants that nobody can take back. A real tgtd,
// stopped and killed. Needs root.
#include <signal.h>

#include <catch2/catch.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/tgt_client.h"
#include "devices/array/tgt/tgt_daemon.h"

namespace lunkeeper::testing {
namespace {

const NodeId kNode("db.0000000000000001");

struct Served : ArrayFixture {
  Served() {
    options.drain_timeout = absl::Seconds(1);
    REQUIRE(Open() == absl::OkStatus());
    array = ArrayFixture::array.get();
    tgtd = TgtdProcess(options.control_port);
    REQUIRE(tgtd > 0);
  }
  ~Served() { ::kill(tgtd, SIGCONT); }
  bool EventuallyHangs(bool hangs) {
    return Eventually([&] { return absl::IsUnavailable(array->CheckTgtd()) == hangs; }, absl::Minutes(1));
  }
  TgtArray* array = nullptr;
  pid_t tgtd = 0;
};

TEST_CASE_METHOD(Served, "a tgtd that hangs is reported, with its process, until it answers again") {
  CHECK(array->CheckTgtd() == absl::OkStatus());
  ::kill(tgtd, SIGSTOP);
  REQUIRE(EventuallyHangs(true));
  CHECK_THAT(std::string(array->CheckTgtd().message()), Catch::Contains(absl::StrCat("kill -9 ", tgtd)));
  CHECK(array->CheckServing() == absl::OkStatus());  // its calls are tried all the same
  ::kill(tgtd, SIGCONT);
  CHECK(EventuallyHangs(false));
  CHECK(array->MeasureGrants()->tgtd_deaths == 0);
}

TEST_CASE_METHOD(Served, "a tgtd that hung and was killed is started again, and counted") {
  ::kill(tgtd, SIGSTOP);
  REQUIRE(EventuallyHangs(true));
  ::kill(tgtd, SIGKILL);
  CHECK(EventuallyHangs(false));
  CHECK(array->MeasureGrants()->tgtd_deaths == 1);
}

TEST_CASE("a tgtd that hangs is reported while the array's own files do not answer either") {
  TempDir directory;
  absl::Notification ticks, disk_answers;
  const auto tick = [&] {
    if (!ticks.HasBeenNotified()) ticks.Notify();
    disk_answers.WaitForNotification();
  };
  const int control_port = FreeControlPort();
  TgtClient client(control_port);
  std::optional<TgtDaemon> daemon;
  daemon.emplace(
      TgtDaemonOptions{.control_port = control_port,
                       .portals = {absl::StrCat("127.0.0.1:", FreePort())},
                       .binary = "/usr/sbin/tgtd",
                       .output_path = directory / "output",
                       .lock_path = directory / "tgtd.lock"},
      client, /*openings=*/nullptr, [](bool) { return absl::OkStatus(); }, tick);
  REQUIRE(daemon->StartServing() == absl::OkStatus());
  const pid_t tgtd = client.FindProcess().value();
  ticks.WaitForNotification();
  ::kill(tgtd, SIGSTOP);
  CHECK(Eventually([&] { return absl::IsUnavailable(daemon->CheckAnswering()); }, absl::Minutes(1)));
  disk_answers.Notify();
  daemon.reset();  // it would start another one
  ::kill(tgtd, SIGKILL);
}

TEST_CASE_METHOD(Served,
                 "a fence of many grants in a tgtd that hangs ends by its time, and not by their count") {
  const auto view = Cluster();
  for (int i = 0; i < 200; ++i) {
    const VolumeId volume = view->volumes().CreateVolume(Spec(absl::StrCat("v", i), 1)).value().id;
    REQUIRE(view->grants().AcquireGrant({.volume = volume, .node = kNode}, absl::ZeroDuration()).ok());
  }
  const auto term = view->fences().BeginTerm("leader");
  ::kill(tgtd, SIGSTOP);
  const absl::Time began = absl::Now();
  const auto fenced = view->fences().FenceNode(*term, {.node = kNode, .all_volumes = true});
  CHECK_FALSE(fenced.ok());
  // One attempt may begin at the end of that second, and waits 5 seconds for an answer; all 200, eight at a
  // time, waited for more than a minute.
  CHECK(absl::Now() - began < absl::Seconds(30));
  ::kill(tgtd, SIGCONT);
  CHECK(Eventually([&] { return view->fences().FenceNode(*term, {.node = kNode, .all_volumes = true}).ok(); },
                   absl::Minutes(1)));
}

TEST_CASE_METHOD(Served, "grants are counted, and how long one is being taken back") {
  const auto view = Cluster();
  const VolumeId volume = view->volumes().CreateVolume(Spec("v", 16)).value().id;
  REQUIRE(view->grants().AcquireGrant({.volume = volume, .node = kNode}, absl::ZeroDuration()).ok());
  CHECK(array->MeasureGrants()->grants_of_tgtds == std::vector<uint64_t>{1});
  CHECK(array->MeasureGrants()->releasing == 0);
  CHECK(array->MeasureGrants()->sessions == 0);
  ::kill(tgtd, SIGSTOP);
  CHECK_FALSE(view->grants().ReleaseGrant(volume, kNode, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(Eventually(
      [&] {
        const auto use = array->MeasureGrants();
        return use.ok() && use->releasing == 1 && use->oldest_release > absl::Seconds(1);
      },
      absl::Minutes(1)));
  ::kill(tgtd, SIGCONT);
  CHECK(Eventually(
      [&] {
        const auto use = array->MeasureGrants();
        return use.ok() && use->grants_of_tgtds == std::vector<uint64_t>{0} &&
               use->oldest_release == absl::ZeroDuration();
      },
      absl::Minutes(1)));
}

}  // namespace
}  // namespace lunkeeper::testing
