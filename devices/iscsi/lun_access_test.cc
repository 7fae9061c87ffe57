// What becomes of commands that a portal does not carry out now: its gateway stands by, or is just taking
// over (SCSI's asymmetric access states).

#include <atomic>
#include <cerrno>
#include <memory>

#include "devices/iscsi/testing/lun_rig.h"

namespace lunkeeper {
namespace {

using iscsi::FakeCommand;
using iscsi::FakeTarget;
using iscsi::Reaction;
using iscsi::Sense;

constexpr uint8_t kTestUnitReady = 0x00;

// As long as `passive` holds.
void RefuseWhile(std::shared_ptr<std::atomic<bool>> passive, FakeTarget& target,
                 std::vector<uint8_t> operations, const Reaction& reaction) {
  target.Change([&](auto& traits) {
    traits.script = [=](const FakeCommand& command) {
      const bool meant = std::ranges::find(operations, command.operation) != operations.end();
      return meant && *passive ? reaction : Reaction{};
    };
  });
}

struct TwoPortals {
  explicit TwoPortals(milliseconds replacement_timeout = seconds(120))
      : rig([&](LunOptions& options) {
          options.connection.other_portals = {other.portal()};
          options.replacement_timeout = replacement_timeout;
        }) {}

  FakeTarget other;
  LunRig rig;
  std::shared_ptr<std::atomic<bool>> passive = std::make_shared<std::atomic<bool>>(true);
};

TEST_CASE("a LUN that one portal does not serve is used at the other one") {
  TwoPortals portals;
  auto& [other, rig, passive] = portals;
  const Reaction reaction = GENERATE(Sense(2, 4, 0x0b), Sense(2, 4, 0x0c), Sense(5, 0x25));
  SECTION("which the login finds out, with its first question") {
    RefuseWhile(passive, rig.target, {kTestUnitReady}, reaction);
    rig.Start();
    REQUIRE(rig.target.Count("ask") == 1);
  }
  SECTION("which a command finds out") {
    rig.Start();
    RefuseWhile(passive, rig.target, {kTestUnitReady, kWrite}, reaction);
  }
  REQUIRE(rig.Write(0, 'x') == 0);
  REQUIRE(other.At(0) == 'x');
  REQUIRE(rig.state.errors == 0);
}

TEST_CASE("a LUN that no portal serves for a while is waited for") {
  TwoPortals portals;
  auto& [other, rig, passive] = portals;
  rig.Start();
  for (FakeTarget* target : {&rig.target, &other})
    RefuseWhile(passive, *target, {kTestUnitReady, kWrite}, Sense(2, 4, 0x0b));
  TestRequest write(LunOp::kWrite, 0, 512, 'x');
  rig.lun->Submit(&write);
  REQUIRE(rig.loop.RunUntil([&] { return portals.other.Count("login") >= 2; }, seconds(60)));
  REQUIRE(rig.state.health == LunHealth::kReconnecting);
  *passive = false;
  REQUIRE(rig.Answered(write, seconds(60)));
  REQUIRE(write.error == 0);
}

TEST_CASE("a LUN that stays between two states is asked for elsewhere in the end") {
  TwoPortals portals;
  auto& [other, rig, passive] = portals;
  rig.Start();
  RefuseWhile(passive, rig.target, {kWrite}, Sense(2, 4, 0x0a));
  TestRequest write(LunOp::kWrite, 0, 512, 'x');
  rig.lun->Submit(&write);
  REQUIRE(rig.Answered(write, seconds(60)));
  REQUIRE(write.error == 0);
  REQUIRE(other.At(0) == 'x');
}

TEST_CASE("a command that every portal refuses, although it serves the LUN, is given up in time") {
  TwoPortals portals(seconds(1));
  auto& [other, rig, passive] = portals;
  rig.Start();
  for (FakeTarget* target : {&rig.target, &other}) RefuseWhile(passive, *target, {kWrite}, Sense(2, 4, 0x0b));
  TestRequest write(LunOp::kWrite, 0, 512, 'x'), read(LunOp::kRead);
  rig.lun->Submit(&write);
  REQUIRE(rig.Answered(write, seconds(60)));
  REQUIRE(write.error == EIO);
  REQUIRE(rig.Do(read) == 0);
}

TEST_CASE("portals that let in and refuse each command are asked less and less often") {
  TwoPortals portals(seconds(4));
  auto& [other, rig, passive] = portals;
  rig.Start();
  for (FakeTarget* target : {&rig.target, &other}) RefuseWhile(passive, *target, {kWrite}, Sense(2, 4, 0x0b));
  TestRequest write(LunOp::kWrite, 0, 512, 'x');
  rig.lun->Submit(&write);
  REQUIRE(rig.Answered(write, seconds(60)));
  REQUIRE(write.error == EIO);
  CHECK(rig.state.logins < 20);  // 60 and more, with a tenth of a second for two portals each time
}

TEST_CASE("portals that refused each command for a while are asked at once when they have served again") {
  TwoPortals portals;
  auto& [other, rig, passive] = portals;
  rig.Start();
  for (FakeTarget* target : {&rig.target, &other}) RefuseWhile(passive, *target, {kWrite}, Sense(2, 4, 0x0b));
  TestRequest write(LunOp::kWrite, 0, 512, 'x');
  rig.lun->Submit(&write);
  REQUIRE(rig.loop.RunUntil([&] { return rig.state.logins >= 8; }, seconds(60)));
  *passive = false;
  REQUIRE(rig.Answered(write, seconds(60)));
  REQUIRE(write.error == 0);
  for (FakeTarget* target : {&rig.target, &other}) target->Inject({});
  REQUIRE(rig.Becomes(LunHealth::kReconnecting));
  const bool is_asked = rig.lun->interest().fd >= 0;  // already; else soon, and not after half a second
  CHECK((is_asked || rig.lun->NextDeadline() < Lun::Clock::now() + milliseconds(100)));
}

// TASK SET FULL, for example: the gateway is overloaded, or has forgotten to end something.
TEST_CASE("a LUN that is busy and carries out nothing is asked for elsewhere in the end") {
  TwoPortals portals;
  auto& [other, rig, passive] = portals;
  rig.Start();
  const uint8_t status = GENERATE(0x08, 0x28);
  RefuseWhile(passive, rig.target, {kWrite}, {Reaction::kStatus, status});
  TestRequest write(LunOp::kWrite, 0, 512, 'x');
  rig.lun->Submit(&write);
  REQUIRE(rig.Answered(write, seconds(60)));
  REQUIRE(write.error == 0);
  REQUIRE(other.At(0) == 'x');
}

TEST_CASE("a LUN that is busy for one command and carries out others keeps its session") {
  TwoPortals portals;
  auto& [other, rig, passive] = portals;
  rig.Start();
  auto left = std::make_shared<std::atomic<int>>(18);  // some twelve seconds
  rig.target.Change([&](auto& traits) {
    traits.script = [=](const FakeCommand& command) {
      return command.operation == kWrite && left->fetch_sub(1) > 0 ? Reaction{Reaction::kStatus, 0x28}
                                                                   : Reaction{};
    };
  });
  TestRequest write(LunOp::kWrite, 0, 512, 'x');
  rig.lun->Submit(&write);
  while (write.answers == 0) {
    TestRequest read(LunOp::kRead);
    REQUIRE(rig.Do(read) == 0);
    rig.loop.RunUntil([&] { return write.answers > 0; }, milliseconds(100));
  }
  REQUIRE(write.error == 0);
  CHECK(rig.state.logins == 1);
}

TEST_CASE("the only portal of a LUN is asked again, in the same session") {
  LunRig rig;
  rig.Start();
  const Reaction reaction = GENERATE(Sense(2, 4, 0x0b), Sense(2, 4, 0x0c), Sense(5, 0x25));
  rig.target.Change([&](auto& traits) { traits.script = Once(kWrite, reaction, 3); });
  REQUIRE(rig.Write(0, 'x') == 0);
  REQUIRE(rig.state.logins == 1);
}

}  // namespace
}  // namespace lunkeeper
