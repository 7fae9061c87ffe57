// Images that do not answer, among others that do. It has a real tgtd, and needs root.

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "devices/array/tgt/gated_questions.h"
#include "devices/array/tgt/testing/held_at.h"
#include "devices/array/tgt/testing/slow_to_open.h"
#include "devices/array/tgt/testing/with_one_silent.h"

namespace lunkeeper::testing {
namespace {

TEST_CASE_METHOD(WithOneSilent,
                 "an image that does not answer keeps no other volume away, and is served when it does") {
  EndTgtd();
  Serve();
  for (const Grant& grant : grants)
    if (grant.volume != grants[1].volume) CHECK(Writes(grant));
  const absl::Status told = PlainInitiator::Login(grants[1].connection).status();
  CHECK_FALSE(told.ok());
  CHECK_FALSE(absl::IsPermissionDenied(told));  // nor is it for good: its node waits
  store.LetAnswer();
  CHECK(Eventually([&] { return Writes(grants[1]); }));
}

TEST_CASE_METHOD(WithOneSilent, "a volume in use goes on while its image does not answer a new agent") {
  const auto used = PlainInitiator::Login(grants[1].connection);
  REQUIRE(used.ok());
  Serve();
  CHECK(Writes(grants[0]));
  CHECK((*used)->Write(1, 'y'));
  store.LetAnswer();
  CHECK((*used)->Write(2, 'z'));
}

TEST_CASE_METHOD(WithOneSilent, "a grant that is released while its image does not answer leaves no target") {
  EndTgtd();
  Serve();
  REQUIRE(catalogue->grants().SetReleasing(grants[1].generation) == absl::OkStatus());
  const auto releasing = catalogue->grants().ListReleasingGrants();
  REQUIRE(releasing.status() == absl::OkStatus());
  CHECK(targets->FinishReleasing(*releasing, absl::Now() + absl::Seconds(10)) == absl::OkStatus());
  store.LetAnswer();
  daemon.reset();
  Serve();
  CHECK(absl::IsPermissionDenied(PlainInitiator::Login(grants[1].connection).status()));
  CHECK(Writes(grants[0]));
}

// A call that began before tgtd died.
TEST_CASE_METHOD(WithOneSilent,
                 "a target that a call opens while its image is waited for does not stay shut") {
  EndTgtd();
  absl::Status started;
  std::jthread serving([&] { started = StartServing(); });
  CHECK(Eventually([&] { return client.ListTargets().ok() && HasTarget(grants[0]); }));
  const LunBacking backing = {.path = store.VolumePath(grants[1].volume)};
  CHECK(targets->OpenTarget(RowOf(grants[1]), backing) == absl::OkStatus());
  serving.join();
  REQUIRE(started == absl::OkStatus());
  store.LetAnswer();
  CHECK(Eventually([&] { return Writes(grants[1]); }));
}

TEST_CASE_METHOD(WithOneSilent,
                 "a grant that is released while a call opens its silent image's target leaves no target") {
  EndTgtd();
  const HeldAt drained("array.target.deleted");
  absl::Status started;
  std::atomic<bool> is_started = false;
  std::jthread serving([&] {
    started = StartServing();
    is_started = true;
  });
  CHECK(Eventually([&] { return client.ListTargets().ok() && HasTarget(grants[0]); }));
  const GrantRow row = RowOf(grants[1]);
  auto inside = gates.Enter(row.volume, absl::Now() + absl::Minutes(1));
  REQUIRE(inside.has_value());
  REQUIRE(catalogue->grants().SetReleasing(row.generation) == absl::OkStatus());
  drained.Arm();
  CHECK(Eventually([&] { return drained.IsReached() || is_started; }, absl::Minutes(1)));
  const auto volume = catalogue->volumes().FindVolume(row.cluster, row.volume);
  CHECK(table->OpenTarget(row, volume->volume, {.path = store.VolumePath(row.volume)}) == absl::OkStatus());
  drained.LetGo();
  serving.join();
  REQUIRE(started == absl::OkStatus());
  REQUIRE(catalogue->grants().DeleteGrants({row.generation}) == absl::OkStatus());
  inside.reset();
  CHECK(Eventually([&] { return !HasTarget(grants[1]); }));
  daemon.reset();
}

// It goes by a row that was read before the release.
TEST_CASE_METHOD(WithOneSilent, "a target that is opened while it is drained is drained once more") {
  EndTgtd();
  const HeldAt drained("array.target.deleted");
  Serve();
  const GrantRow row = RowOf(grants[0]);
  const auto volume = catalogue->volumes().FindVolume(row.cluster, row.volume);
  REQUIRE(catalogue->grants().SetReleasing(row.generation) == absl::OkStatus());
  drained.Arm();
  absl::Status released;
  std::jthread releasing([&] { released = targets->FinishReleasing({row}, absl::Now() + absl::Minutes(1)); });
  REQUIRE(Eventually([&] { return drained.IsReached(); }));
  CHECK(table->OpenTarget(row, volume->volume, {.path = store.VolumePath(row.volume)}) == absl::OkStatus());
  drained.LetGo();
  releasing.join();
  CHECK(released == absl::OkStatus());
  CHECK_FALSE(HasTarget(grants[0]));
  store.LetAnswer();
  daemon.reset();
}

// And so does no fence. Other nodes' calls for a shared volume wait in its line.
TEST_CASE_METHOD(WithOneSilent,
                 "a release does not wait behind calls that wait inside the gate for a silent image") {
  EndTgtd();
  Serve();
  const GrantRow row = RowOf(grants[1]);
  const GrantRow other = AddGrant(row.volume);
  std::vector<std::jthread> calls(12);
  for (std::jthread& call : calls)
    call = std::jthread([&] {
      const auto pass = gates.Enter(row.volume, absl::Now() + absl::Minutes(1));
      targets->OpenTarget(other).IgnoreError();
    });
  REQUIRE(Eventually([&] { return !gates.Enter(row.volume, absl::InfinitePast()).has_value(); }));
  REQUIRE(catalogue->grants().SetReleasing(row.generation) == absl::OkStatus());
  CHECK(targets->FinishReleasing({row}, absl::Now() + absl::Seconds(20)) == absl::OkStatus());
  CHECK_FALSE(HasTarget(grants[1]));
  store.LetAnswer();
  calls.clear();
  daemon.reset();
}

TEST_CASE_METHOD(WithOneSilent, "a release does not wait behind a growth of an image that does not answer") {
  Serve();  // by the tgtd that has it open
  CheckHoldsUpNoRelease(grants[1], [&] { targets->ReopenLun(RowOf(grants[1])).IgnoreError(); });
}

TEST_CASE_METHOD(WithOneSilent,
                 "a release does not wait behind a growth whose image falls silent when tgtd has opened it") {
  store.SilenceRegistering(grants[2].volume);
  Serve();
  CheckHoldsUpNoRelease(grants[2], [&] { targets->ReopenLun(RowOf(grants[2])).IgnoreError(); });
}

TEST_CASE_METHOD(WithOneSilent,
                 "a release does not wait behind a grant whose image falls silent when tgtd has opened it") {
  store.SilenceRegistering(grants[2].volume);
  Serve();
  const GrantRow other = AddGrant(grants[2].volume);
  CheckHoldsUpNoRelease(grants[2], [&] { targets->OpenTarget(other).IgnoreError(); });
}

TEST_CASE_METHOD(WithOneSilent, "an image that is not registered for long has one thread for that") {
  store.SilenceRegistering(grants[0].volume);
  GatedQuestions questions(*catalogue, store);
  const auto before = std::make_shared<std::set<std::string>>();
  CHECK(absl::IsUnavailable(questions.RegisterOpened(RowOf(grants[0]), before)));
  const absl::Time again = absl::Now();
  CHECK(absl::IsUnavailable(questions.RegisterOpened(RowOf(grants[0]), before)));
  CHECK(absl::Now() - again < absl::Seconds(1));  // nothing was asked
  store.LetAnswer();
  CHECK(Eventually([&] { return questions.RegisterOpened(RowOf(grants[0]), before).ok(); }));
}

// Its node may not call again, and on Ceph no other node can get the volume beside it.
TEST_CASE_METHOD(WithOneSilent, "a LUN that a call could not register is opened by itself, and only once") {
  store.SilenceRegistering(grants[2].volume);
  Serve();
  const GrantRow row = AddGrant(grants[2].volume);
  const auto open = [&] {
    const auto pass = gates.Enter(row.volume, absl::Now() + absl::Minutes(1));
    return targets->OpenGranted(row);
  };
  CHECK(absl::IsUnavailable(open()));
  store.LetAnswer();
  const bool calls_again = GENERATE(false, true);
  if (calls_again) CHECK(Eventually([&] { return open().ok(); }));
  std::unique_ptr<PlainInitiator> initiator;
  REQUIRE(Eventually([&] {
    auto login = PlainInitiator::Login(table->ConnectionOf(row));
    if (login.ok()) initiator = *std::move(login);
    return initiator != nullptr;
  }));
  absl::SleepFor(absl::Seconds(3));  // some ticks
  CHECK(initiator->Write(0, 'x'));
  daemon.reset();
}

TEST_CASE_METHOD(WithOneSilent,
                 "an image that falls silent when tgtd has opened it keeps no other volume away") {
  store.SilenceRegistering(grants[2].volume);
  EndTgtd();
  Serve();
  for (const Grant& grant : grants)
    if (grant.volume != grants[1].volume && grant.volume != grants[2].volume) CHECK(Writes(grant));
  store.LetAnswer();
  CHECK(Eventually([&] { return Writes(grants[2]); }));
  daemon.reset();
}

TEST_CASE_METHOD(WithOneSilent, "a grant that is asked for again does not wait for an image that is served") {
  Serve();  // by the tgtd that has it open
  const GrantRow row = RowOf(grants[1]);
  absl::Status opened = absl::UnknownError("not answered");
  absl::Notification is_answered;
  std::jthread call([&] {
    opened = targets->OpenTarget(row);
    is_answered.Notify();
  });
  CHECK(is_answered.WaitForNotificationWithTimeout(absl::Minutes(1)));
  store.LetAnswer();
  call.join();
  CHECK(opened == absl::OkStatus());
}

TEST_CASE_METHOD(WithOneSilent,
                 "an image that falls silent just before tgtd opens it keeps no other volume away for long") {
  EndTgtd();
  store.LetAnswer();
  auto unopenable = std::make_unique<Unopenable>(store.VolumePath(grants[1].volume));
  Serve();
  for (const Grant& grant : grants)
    if (grant.volume != grants[1].volume) CHECK(Eventually([&] { return Writes(grant); }, absl::Minutes(1)));
  unopenable.reset();
  CHECK(Eventually([&] { return Writes(grants[1]); }, absl::Minutes(1)));
}

TEST_CASE_METHOD(WithOneSilent, "a tgtd that hangs while it opens an image is started again without it") {
  EndTgtd();
  Serve();
  const pid_t before = TgtdProcess(options.control_port);
  const Unopenable unopenable(store.VolumePath(grants[1].volume));
  store.LetAnswer();
  const auto is_another = [&] {
    const pid_t now = TgtdProcess(options.control_port);
    return now != 0 && now != before;
  };
  CHECK(Eventually(is_another, absl::Minutes(1)));
  CHECK(Eventually([&] { return Writes(grants[0]); }, absl::Minutes(1)));
}

// Of the image that it grows, tgtd opens the file anew.
TEST_CASE_METHOD(WithOneSilent, "a tgtd that hangs while an image grows is started again without it") {
  store.LetAnswer();
  Serve();
  const pid_t before = TgtdProcess(options.control_port);
  const std::string path = store.VolumePath(grants[1].volume);
  std::filesystem::rename(path, path + ".open");
  std::filesystem::copy(path + ".open", path);
  const Unopenable unopenable(path);
  CHECK(absl::IsUnavailable(targets->ReopenLun(RowOf(grants[1]))));
  CHECK_FALSE(table->IsOpen(RowOf(grants[1])));  // nobody knows yet by which client it will be
  const auto is_another = [&] {
    const pid_t now = TgtdProcess(options.control_port);
    return now != 0 && now != before;
  };
  CHECK(Eventually(is_another, absl::Minutes(1)));
  CHECK(Eventually([&] { return Writes(grants[0]); }, absl::Minutes(1)));
  daemon.reset();
}

// A close may hang as well: RBD asks the store then, too.
TEST_CASE_METHOD(WithOneSilent, "a tgtd that hangs while it closes an image is started again without it") {
  store.LetAnswer();
  const HeldAt quiet("array.target.connections_deleted");
  Serve();
  const pid_t before = TgtdProcess(options.control_port);
  const GrantRow row = RowOf(grants[1]);
  REQUIRE(catalogue->grants().SetReleasing(row.generation) == absl::OkStatus());
  quiet.Arm();
  absl::Status released;
  std::jthread release([&] { released = targets->FinishReleasing({row}, absl::Now() + absl::Minutes(1)); });
  CHECK(Eventually([&] { return quiet.IsReached(); }));
  ::kill(before, SIGSTOP);  // the image is the next thing that tgtd is asked for
  quiet.LetGo();
  CHECK(Eventually([&] { return Writes(grants[0]); }, absl::Minutes(1)));
  CHECK(TgtdProcess(options.control_port) != before);
  ::kill(before, SIGCONT);
  release.join();
  CHECK(released == absl::OkStatus());
  CHECK_FALSE(HasTarget(grants[1]));
  daemon.reset();
}

// It could not know why tgtd does not answer, and each start failed until the image answered.
TEST_CASE_METHOD(WithOneSilent, "an agent that is started while tgtd hangs on an image serves the others") {
  EndTgtd();
  Serve();
  daemon.reset();
  const Unopenable unopenable(store.VolumePath(grants[1].volume));
  store.LetAnswer();
  const GrantRow row = RowOf(grants[1]);
  const VolumeRow volume = catalogue->volumes().FindVolume(row.cluster, row.volume).value();
  const LunBacking backing = {.path = store.VolumePath(row.volume), .may_be_silent_alone = true};
  REQUIRE(absl::IsUnavailable(table->OpenTarget(row, volume.volume, backing)));
  BeginAgent();
  Serve();
  for (const Grant& grant : grants)
    if (grant.volume != grants[1].volume) CHECK(Writes(grant));
}

TEST_CASE_METHOD(WithOneSilent, "a tgtd that serves at another control port is not ended for an old mark") {
  std::ofstream(options.pool_dir + "/opening") << grants[1].generation;
  BeginAgent();
  const pid_t before = TgtdProcess(options.control_port);
  ++options.control_port;
  TgtClient elsewhere(options.control_port);
  CHECK(absl::IsFailedPrecondition(StartServing(elsewhere)));
  CHECK(TgtdProcess(--options.control_port) == before);
}

TEST_CASE_METHOD(WithOneSilent,
                 "a tgtd that opens image after image, each of them slowly, is not ended for it") {
  EndTgtd();
  store.LetAnswer();
  std::vector<std::string> paths;
  for (const Grant& grant : grants) paths.push_back(store.VolumePath(grant.volume));
  const SlowToOpen slow(paths);
  absl::Status started;
  std::jthread serving([&] { started = StartServing(); });
  pid_t first = 0;
  CHECK(Eventually([&] { return (first = TgtdProcess(options.control_port)) != 0; }));
  serving.join();
  CHECK(started == absl::OkStatus());
  CHECK(TgtdProcess(options.control_port) == first);
  for (const Grant& grant : grants) CHECK(Eventually([&] { return Writes(grant); }, absl::Minutes(1)));
  daemon.reset();
}

TEST_CASE_METHOD(WithOneSilent,
                 "a grant that is released while its damaged image is tried leaves no target") {
  const Grant& grant = grants[2];
  EndTgtd();
  std::atomic<bool> held = false;
  absl::Notification released;
  store.Damage(grant.volume, [&] {
    if (!held || released.HasBeenNotified()) return;
    GrantRow row = RowOf(grant);
    CHECK(catalogue->grants().SetReleasing(row.generation) == absl::OkStatus());
    CHECK(targets->FinishReleasing({row}, absl::Now() + absl::Seconds(10)) == absl::OkStatus());
    released.Notify();
  });
  Serve();
  CHECK(HasTarget(grant));
  held = true;
  released.WaitForNotification();
  daemon.reset();  // once the attempt is over
  CHECK_FALSE(HasTarget(grant));
}

// Its node is at it, and may have to log in again.
TEST_CASE_METHOD(WithOneSilent,
                 "a held target that a call has opened is not shut when its image is refused") {
  const Grant& grant = grants[2];
  EndTgtd();
  std::atomic<int> asked = 0;
  store.Damage(grant.volume, [&] { ++asked; });
  Serve();
  CHECK_FALSE(Writes(grant));
  {
    const auto pass = gates.Enter(grant.volume, absl::Now() + absl::Minutes(1));
    REQUIRE(pass.has_value());
    CHECK(targets->OpenTarget(RowOf(grant), LunBacking{.path = store.VolumePath(grant.volume)}) ==
          absl::OkStatus());
  }
  const int before = asked;
  CHECK(Eventually([&] { return asked > before + 2; }));
  CHECK(Writes(grant));
  store.LetAnswer();
  daemon.reset();
}

}  // namespace
}  // namespace lunkeeper::testing
