// What becomes of a LUN when its connection, its target or its storage host fails.

#include <cerrno>

#include "devices/iscsi/testing/lun_rig.h"

namespace lunkeeper {
namespace {

using iscsi::FakeCommand;
using iscsi::Reaction;

TEST_CASE("a target whose first portal does not answer is used at another, and found there again at once") {
  LunRig rig([](LunOptions& options) {
    options.connection.other_portals = {"not-an-address", options.connection.portal, "127.0.0.1:2"};
    options.connection.portal = "127.0.0.1:1";  // refuses connections
  });
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  for (uint32_t logins = 2; logins < 5; ++logins) {
    rig.target.Inject({});
    REQUIRE(rig.Write(0, 'b') == 0);
    REQUIRE(rig.state.logins == logins);
  }
  REQUIRE(rig.target.connections() == 4);
}

TEST_CASE("after a lost connection nothing is sent again before the LUN reset was answered") {
  LunRig rig([](LunOptions& options) { options.queue_depth = 2; });  // so that the third waits
  // The first session's writes are slow: they reach the medium only when the reset ends them.
  rig.target.Change([](auto& traits) {
    traits.script = [](const FakeCommand& command) {
      return Reaction{command.operation == kWrite && command.session == 1 ? Reaction::kHold
                                                                          : Reaction::kAnswer};
    };
  });
  rig.Start();
  TestRequest first(LunOp::kWrite, 0, 512, '1'), second(LunOp::kWrite, 4096, 512, '2'),
      third(LunOp::kWrite, 512, 512, '3');
  for (TestRequest* request : {&first, &second, &third}) rig.lun->Submit(request);
  REQUIRE(rig.loop.RunUntil([&] { return rig.target.Count("write 8") == 1; }, seconds(5)));
  const size_t cut = rig.target.Events().size();
  rig.target.Inject({});
  for (TestRequest* request : {&first, &second, &third}) {
    REQUIRE(rig.Answered(*request));
    REQUIRE(request->error == 0);
    REQUIRE(request->answers == 1);
  }
  REQUIRE(rig.Write(0, 'n') == 0);
  const auto events = rig.target.Events();
  const size_t reset = IndexOf(events, "reset", cut);
  REQUIRE(reset < IndexOf(events, "write 0", cut));
  REQUIRE(IndexOf(events, "write 0", reset) < IndexOf(events, "write 8", reset));  // the order of submission
  REQUIRE(IndexOf(events, "write 8", reset) < IndexOf(events, "write 1", reset));
  REQUIRE(rig.target.At(0) == 'n');
}

TEST_CASE("a split write that was cut off begins anew: what was done of it may be lost") {
  LunRig rig;
  rig.target.Change([](auto& traits) {
    traits.max_transfer = 8;
    traits.script = [](const FakeCommand& command) {
      const bool cut = command.operation == kWrite && command.lba == 8 && command.session == 1;
      return Reaction{cut ? Reaction::kDrop : Reaction::kAnswer};
    };
  });
  rig.Start();
  TestRequest write(LunOp::kWrite, 0, 8192, 'w');
  REQUIRE(rig.Do(write) == 0);
  REQUIRE(rig.target.Count("write 0") == 2);
}

TEST_CASE("a reset that is not answered is asked for again, and nothing is sent before it was") {
  LunRig rig([](LunOptions& options) { options.command_timeout = milliseconds(600); });
  rig.Start();
  rig.target.Change([](auto& traits) { traits.reset_drops = true; });
  TestRequest write(LunOp::kWrite, 0, 512, 'w');
  rig.target.Inject({});
  rig.lun->Submit(&write);
  REQUIRE_FALSE(rig.Answered(write, milliseconds(700)));
  REQUIRE(rig.target.Count("write 0") == 0);
  rig.target.Change([](auto& traits) { traits.reset_drops = false; });
  REQUIRE(rig.Answered(write));
  REQUIRE(write.error == 0);
}

TEST_CASE("a target that breaks off or breaks the protocol costs a reconnect, not an error") {
  std::vector<uint8_t> wrong_tag(48), too_long(48), unknown(48), reject(48), early(48), data_for_nobody(48);
  wrong_tag[0] = iscsi::kScsiResponse;
  iscsi::Put32(&wrong_tag[iscsi::kTagAt], 0x12345678);
  too_long = wrong_tag;
  iscsi::Put24(&too_long[iscsi::kDataLengthAt], 0xffffff);
  unknown[0] = 0x3c;
  reject[0] = iscsi::kReject;
  early[0] = iscsi::kLoginResponse;
  data_for_nobody[0] = iscsi::kDataIn;
  const Reaction reaction = GENERATE_COPY(
      Reaction{Reaction::kDrop}, Reaction{Reaction::kHalf}, Reaction{Reaction::kRaw, 0, 0, 0, 0, wrong_tag},
      Reaction{Reaction::kRaw, 0, 0, 0, 0, too_long}, Reaction{Reaction::kRaw, 0, 0, 0, 0, unknown},
      Reaction{Reaction::kRaw, 0, 0, 0, 0, reject}, Reaction{Reaction::kRaw, 0, 0, 0, 0, early},
      Reaction{Reaction::kRaw, 0, 0, 0, 0, data_for_nobody});
  LunRig rig;
  rig.Start();
  REQUIRE(rig.Write(512, 'r') == 0);
  rig.target.Change([&](auto& traits) { traits.script = Once(kRead, reaction); });
  TestRequest read(LunOp::kRead, 512, 65536);
  REQUIRE(rig.Do(read) == 0);
  REQUIRE(read.buffer[0] == 'r');
  REQUIRE(read.buffer[1024] == '\0');  // nothing of a half answer is left
  REQUIRE(rig.target.Count("login") == 2);
}

TEST_CASE("a refused login is for good, whatever the target says later") {
  LunRig rig;
  rig.Start();
  rig.target.Change([](auto& traits) {
    traits.login_class = 2;
    traits.login_detail = 3;
    traits.script = Once(kWrite, Reaction{Reaction::kDrop});
  });
  TestRequest write(LunOp::kWrite), waiting(LunOp::kFlush);
  rig.lun->Submit(&write);
  rig.lun->Submit(&waiting);
  REQUIRE(rig.Becomes(LunHealth::kFailed));
  REQUIRE(rig.Answered(write));
  REQUIRE(rig.Answered(waiting));
  REQUIRE(write.error == EIO);
  REQUIRE(waiting.error == EIO);
  REQUIRE(rig.state.failure == LunFailure::kRefused);
  REQUIRE_THAT(rig.state.reason.Load(), Catch::Contains("target not found"));
  rig.target.Change([](auto& traits) { traits.login_class = 0; });
  const int connections = rig.target.connections();
  REQUIRE(rig.Write(0, 'w') == EIO);
  REQUIRE_FALSE(rig.Becomes(LunHealth::kHealthy, milliseconds(300)));
  REQUIRE(rig.target.connections() == connections);
  rig.Drop();  // nor in a successor's hands
  rig.Make();
  rig.state.health = LunHealth::kFailed;
  rig.lun->Start();
  REQUIRE_FALSE(rig.Becomes(LunHealth::kHealthy, milliseconds(300)));
}

TEST_CASE("a target that cannot take a login now is asked again") {
  LunRig rig;
  rig.target.Change([](auto& traits) { traits.login_class = 3; });
  rig.lun->Start();
  REQUIRE(rig.loop.RunUntil([&] { return rig.target.Count("refused login") >= 2; }, seconds(5)));
  REQUIRE(rig.state.health == LunHealth::kConnecting);
  rig.target.Change([](auto& traits) { traits.login_class = 0; });
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
}

TEST_CASE("a target that stays away for the replacement time-out is given up") {
  LunRig rig([](LunOptions& options) { options.replacement_timeout = milliseconds(400); });
  rig.Start();
  rig.target.Change([](auto& traits) { traits.reset_drops = true; });
  rig.target.Inject({});
  TestRequest write(LunOp::kWrite);
  rig.lun->Submit(&write);
  REQUIRE(rig.Answered(write));
  REQUIRE(write.error == EIO);
  REQUIRE(rig.state.health == LunHealth::kFailed);
}

TEST_CASE("a storage host that restarted with writes it had not flushed fails the LUN") {
  LunRig rig;
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  REQUIRE(rig.Write(512, 'b') == 0);
  REQUIRE(rig.state.unflushed() == 2);
  rig.target.Change([](auto& traits) { traits.product = "fedcba9876543210"; });
  rig.CutAndWait();
  REQUIRE(rig.state.health == LunHealth::kFailed);
  REQUIRE_THAT(rig.state.reason.Load(),
               Catch::Contains(
                   "storage host restarted, or its disk failed, before 2 acknowledged writes were flushed"));
}

// Repeated, it would succeed: the kernel reports a disk's error once.
TEST_CASE(
    "after a flush whose answer was lost with its session an array has time to say that its disk failed") {
  LunRig rig;
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  rig.target.Change([](auto& traits) { traits.script = Once(kFlush, Reaction{Reaction::kDrop}); });
  TestRequest flush(LunOp::kFlush);
  rig.lun->Submit(&flush);
  REQUIRE(rig.loop.RunUntil([&] { return rig.target.Count("reset") == 2; }, seconds(5)));
  rig.loop.RunUntil([] { return false; }, milliseconds(700));
  rig.target.Change([](auto& traits) { traits.product = "fedcba9876543210"; });
  REQUIRE(rig.Answered(flush));
  CHECK(flush.error == EIO);
  CHECK(rig.state.health == LunHealth::kFailed);
}

TEST_CASE("a successor of a process that died in a flush gives the array the same time") {
  const bool answered = GENERATE(false, true);
  LunRig rig;
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  if (answered) REQUIRE(rig.Flush() == 0);
  REQUIRE(rig.Write(0, 'b') == 0);
  rig.target.Change([](auto& traits) { traits.script = Once(kFlush, Reaction{Reaction::kHold}); });
  TestRequest flush(LunOp::kFlush);
  if (!answered) rig.lun->Submit(&flush);
  rig.loop.RunUntil([] { return false; }, milliseconds(100));
  rig.Drop();
  rig.state.health = LunHealth::kHealthy;  // as a process that was killed leaves it
  rig.Make();
  rig.lun->Start();
  REQUIRE(rig.loop.RunUntil([&] { return rig.target.Count("reset") == 2; }, seconds(5)));
  rig.loop.RunUntil([] { return false; }, milliseconds(700));
  REQUIRE((rig.state.health == LunHealth::kHealthy) == answered);
  rig.target.Change([](auto& traits) { traits.product = "fedcba9876543210"; });
  if (!answered) REQUIRE(rig.Becomes(LunHealth::kFailed));
}

TEST_CASE("a storage host that restarted with everything flushed is met again") {
  const int kind = GENERATE(0, 1, 2, 3);
  LunRig rig;
  if (kind == 2) rig.target.Change([](auto& traits) { traits.write_cache = false; });
  rig.Start();
  if (kind != 3) REQUIRE(rig.Write(0, 'a', kind == 1) == 0);
  if (kind == 0) REQUIRE(rig.Flush() == 0);
  REQUIRE(rig.state.unflushed() == 0);
  rig.target.Change([](auto& traits) { traits.product = "fedcba9876543210"; });
  rig.CutAndWait();
  REQUIRE(rig.state.health == LunHealth::kHealthy);
  REQUIRE(std::string(rig.state.boot_id) == "fedcba9876543210");
}

TEST_CASE("a restart of the target alone loses nothing") {
  LunRig rig;
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  rig.CutAndWait();
  REQUIRE(rig.state.health == LunHealth::kHealthy);
  REQUIRE(rig.state.unflushed() == 1);
  REQUIRE(rig.Flush() == 0);
  REQUIRE(rig.state.unflushed() == 0);
}

TEST_CASE("a successor goes on where the process before it stopped") {
  LunRig rig;
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  rig.Drop();
  rig.state.health = LunHealth::kHealthy;  // as a process that was killed leaves it
  rig.Make();
  rig.lun->Start();
  REQUIRE(rig.state.health == LunHealth::kReconnecting);
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
  REQUIRE(rig.target.Count("reset") == 2);
  rig.target.Change([](auto& traits) { traits.product = "fedcba9876543210"; });
  rig.CutAndWait();
  REQUIRE(rig.state.health == LunHealth::kFailed);
}

TEST_CASE("another LUN in its place fails it for good") {
  LunRig rig;
  rig.Start();
  rig.target.Change([](auto& traits) {
    if (GENERATE(true, false)) {
      traits.serial = "serial-2";
    } else {
      traits.blocks = 4096;
    }
  });
  rig.CutAndWait();
  REQUIRE(rig.state.health == LunHealth::kFailed);
}

TEST_CASE("a target without LUN reset is not used") {
  LunRig rig;
  rig.target.Change([](auto& traits) { traits.reset_response = 5; });
  rig.lun->Start();
  REQUIRE(rig.Becomes(LunHealth::kFailed));
  REQUIRE(rig.state.failure == LunFailure::kNoReset);
  REQUIRE_THAT(rig.state.reason.Load(), Catch::Contains("cannot reset"));
}

TEST_CASE("a target that falls silent, busy or idle, is left and met again") {
  LunRig rig([](LunOptions& options) { options.command_timeout = milliseconds(600); });
  rig.target.Change([](auto& traits) { traits.script = Once(kRead, Reaction{Reaction::kSilence}); });
  rig.Start();
  TestRequest read(LunOp::kRead);
  REQUIRE(rig.Do(read) == 0);
  REQUIRE(rig.target.Count("login") == 2);
  REQUIRE(rig.loop.RunUntil([&] { return rig.target.Count("ping") >= 2; }, seconds(5)));
  REQUIRE(rig.state.logins == 2);
}

TEST_CASE("a target that owes an answer and is silent shows as stalled until it is heard again") {
  LunRig rig;
  rig.target.Change([](auto& traits) { traits.script = Once(kRead, Reaction{Reaction::kHold}); });
  rig.Start();
  REQUIRE_FALSE(rig.loop.RunUntil([&] { return rig.state.stalled.load(); }, seconds(1)));
  TestRequest read(LunOp::kRead);
  rig.lun->Submit(&read);
  rig.lun->SendQueued();
  REQUIRE_FALSE(rig.state.stalled);
  REQUIRE(rig.loop.RunUntil([&] { return rig.state.stalled.load(); }, seconds(5)));
  REQUIRE(rig.state.health == LunHealth::kHealthy);
  REQUIRE(rig.Write(4096, 'x') == 0);
  REQUIRE_FALSE(rig.state.stalled);
  rig.lun->Fail("over");
}

TEST_CASE("a command that is never answered ends the connection although others are") {
  LunRig rig([](LunOptions& options) { options.command_timeout = milliseconds(500); });
  rig.target.Change([](auto& traits) { traits.script = Once(kRead, Reaction{Reaction::kHold}); });
  rig.Start();
  TestRequest read(LunOp::kRead);
  rig.lun->Submit(&read);
  REQUIRE(rig.loop.RunUntil(
      [&] {
        if (read.answers == 0) REQUIRE(rig.Write(4096, 'x') == 0);
        return read.answers > 0;
      },
      seconds(5)));
  REQUIRE(read.error == 0);
  REQUIRE(rig.target.Count("login") == 2);
}

TEST_CASE("the target's pings are answered, and its wish to end the session is met") {
  LunRig rig;
  rig.Start();
  std::vector<uint8_t> ping(48), logout(48);
  ping[0] = iscsi::kNopIn;
  iscsi::Put32(&ping[iscsi::kTagAt], iscsi::kNoTag);
  iscsi::Put32(&ping[iscsi::kTargetTagAt], 5);
  rig.target.Inject(ping);
  REQUIRE(rig.loop.RunUntil([&] { return rig.target.Count("ping") == 1; }, seconds(5)));
  REQUIRE(rig.state.logins == 1);
  logout[0] = iscsi::kAsyncMessage;
  logout[36] = 1;
  rig.target.Inject(logout);
  REQUIRE(rig.loop.RunUntil([&] { return rig.state.logins == 2; }, seconds(5)));
}

}  // namespace
}  // namespace lunkeeper
