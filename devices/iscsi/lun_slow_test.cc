// What becomes of a LUN whose target is slow, and alive: it answers pings.

#include <cerrno>

#include "devices/iscsi/testing/lun_rig.h"

namespace lunkeeper {
namespace {

using iscsi::AfterPings;
using iscsi::Reaction;

// A ping goes out after a sixth of the command time-out in silence, so 20 of them are more than three
// time-outs: with the usual ones, more than a minute and a half.
TEST_CASE("a flush may take as long as the target answers pings") {
  LunRig rig([](LunOptions& options) {
    options.command_timeout = milliseconds(1800);
    options.replacement_timeout = milliseconds(1800);
  });
  rig.target.Change([](auto& traits) { traits.script = Once(kFlush, AfterPings(20)); });
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  TestRequest flush(LunOp::kFlush);
  rig.lun->Submit(&flush);
  REQUIRE(rig.Answered(flush, seconds(30)));
  REQUIRE(flush.error == 0);
  REQUIRE(rig.target.Count("login") == 1);
  REQUIRE(rig.target.Count("flush") == 1);
  REQUIRE(rig.state.unflushed() == 0);
}

TEST_CASE("a flush on a target that falls silent ends the connection, and is sent again") {
  LunRig rig([](LunOptions& options) { options.command_timeout = milliseconds(600); });
  rig.target.Change([](auto& traits) { traits.script = Once(kFlush, Reaction{Reaction::kSilence}); });
  rig.Start();
  REQUIRE(rig.Flush() == 0);
  REQUIRE(rig.target.Count("login") == 2);
}

TEST_CASE("a reset that waits for a long flush is not a target that is away") {
  LunRig rig([](LunOptions& options) {
    options.command_timeout = milliseconds(1800);
    options.replacement_timeout = milliseconds(1800);
  });
  rig.Start();
  rig.target.Change([](auto& traits) { traits.reset_pings = 20; });
  const size_t logins = rig.target.Count("login");
  rig.CutAndWait(seconds(30));
  REQUIRE(rig.state.health == LunHealth::kHealthy);
  REQUIRE(rig.target.Count("login") == logins + 1);
  REQUIRE(rig.Write(0, 'a') == 0);
}

TEST_CASE("a reset on a target that falls silent is asked for again, and the target given up in time") {
  LunRig rig([](LunOptions& options) {
    options.command_timeout = milliseconds(300);
    options.replacement_timeout = milliseconds(900);
  });
  rig.Start();
  rig.target.Change([](auto& traits) { traits.reset_silent = true; });
  rig.CutAndWait();
  REQUIRE(rig.state.failure == LunFailure::kAway);
  REQUIRE(rig.target.Count("login") >= 3);
}

TEST_CASE("zeroing may take longer than other commands, but not for ever") {
  LunRig rig([](LunOptions& options) {
    options.command_timeout = milliseconds(1200);
    options.bulk_command_timeout = milliseconds(4000);
  });
  static constexpr uint8_t kWriteSame = 0x93;
  rig.target.Change([](auto& traits) { traits.script = Once(kWriteSame, AfterPings(12)); });
  rig.Start();
  TestRequest slow(LunOp::kWriteZeroes, 0, 4096);
  rig.lun->Submit(&slow);
  REQUIRE(rig.Answered(slow, seconds(30)));
  REQUIRE(slow.error == 0);
  REQUIRE(rig.target.Count("login") == 1);
  rig.target.Change([](auto& traits) { traits.script = Once(kWriteSame, Reaction{Reaction::kHold}); });
  TestRequest endless(LunOp::kWriteZeroes, 0, 4096);
  rig.lun->Submit(&endless);
  REQUIRE(rig.Answered(endless, seconds(30)));
  REQUIRE(endless.error == 0);
  REQUIRE(rig.target.Count("login") == 2);
}

}  // namespace
}  // namespace lunkeeper
