// What becomes of commands that end the session each time they are sent.

#include <cerrno>

#include "devices/iscsi/testing/lun_rig.h"

namespace lunkeeper {
namespace {

using iscsi::AfterPings;
using iscsi::FakeCommand;
using iscsi::Reaction;

TEST_CASE("a command that breaks every session is given up, and those sent with it are not") {
  LunRig rig([](LunOptions& options) { options.command_timeout = milliseconds(600); });
  // The first is slow: whenever both are in flight, it is the oldest when the second breaks the session.
  rig.target.Change([](auto& traits) {
    traits.script = [](const FakeCommand& command) {
      if (command.operation == kRead && command.lba == 8) return AfterPings(1);
      return Reaction{command.operation == kRead && command.lba == 16 ? Reaction::kDrop : Reaction::kAnswer};
    };
  });
  rig.Start();
  TestRequest slow(LunOp::kRead, 8 * 512), poison(LunOp::kRead, 16 * 512), write(LunOp::kWrite, 0, 512, 'w');
  for (TestRequest* request : {&slow, &poison, &write}) rig.lun->Submit(request);
  for (TestRequest* request : {&slow, &poison, &write}) REQUIRE(rig.Answered(*request, seconds(40)));
  REQUIRE(slow.error == 0);
  REQUIRE(poison.error == EIO);
  REQUIRE(write.error == 0);
  REQUIRE(rig.target.At(0) == 'w');
  REQUIRE(rig.state.errors == 1);
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
  const uint64_t logins = rig.state.logins;
  REQUIRE(rig.Write(512, 'x') == 0);
  REQUIRE(rig.state.logins == logins);
}

TEST_CASE("a command that breaks a few sessions is carried out in the end") {
  LunRig rig;
  rig.target.Change([](auto& traits) { traits.script = Once(kWrite, Reaction{Reaction::kDrop}, 5); });
  rig.Start();
  TestRequest write(LunOp::kWrite, 0, 512, 'w');
  rig.lun->Submit(&write);
  REQUIRE(rig.Answered(write, seconds(20)));
  REQUIRE(write.error == 0);
  REQUIRE(rig.target.At(0) == 'w');
}

TEST_CASE("sessions lost while the target is away are no fault of the requests") {
  LunRig rig;
  rig.Start();
  rig.target.Change([](auto& traits) { traits.reset_drops = true; });
  rig.target.Inject({});
  TestRequest write(LunOp::kWrite, 0, 512, 'w');
  rig.lun->Submit(&write);
  REQUIRE(rig.loop.RunUntil([&] { return rig.target.connections() > 12; }, seconds(30)));
  rig.target.Change([](auto& traits) { traits.reset_drops = false; });
  REQUIRE(rig.Answered(write));
  REQUIRE(write.error == 0);
}

}  // namespace
}  // namespace lunkeeper
