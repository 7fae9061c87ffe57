// What becomes of a LUN whose target asks for the end of the session, or ends it (RFC 7143, 11.9).

#include <cerrno>

#include "devices/iscsi/async_message.h"
#include "devices/iscsi/testing/lun_rig.h"

namespace lunkeeper {
namespace {

using iscsi::FakeCommand;
using iscsi::FakeTarget;
using iscsi::Reaction;

// Sent before the answer to a command.
Reaction Telling(uint8_t event, uint16_t seconds_to_wait, uint16_t limit_seconds) {
  std::vector<uint8_t> message(48);
  message[36] = event;
  iscsi::Put16(&message[40], seconds_to_wait);
  iscsi::Put16(&message[42], limit_seconds);
  return {Reaction::kTell, 0, 0, 0, 0, message, 0, false};
}

bool WaitsFor(LunRig& rig, milliseconds time) {
  return rig.loop.RunUntil(
      [&] { return rig.lun->interest().fd < 0 && rig.lun->NextDeadline() > Lun::Clock::now() + time; },
      seconds(60));
}

TEST_CASE("a target that asks for a logout gets it, after what was in flight and before anything else") {
  LunRig rig([](LunOptions& options) { options.queue_depth = 1; });
  rig.target.Change([](auto& traits) {
    traits.script =
        Once(kWrite, Telling(GENERATE(iscsi::kLogoutRequested, iscsi::kNegotiationRequested), 0, 60));
  });
  rig.Start();
  // The first one's data are still to be sent when the target asks.
  TestRequest first(LunOp::kWrite, 0, 65536, '1'), second(LunOp::kWrite, 65536, 512, '2');
  for (TestRequest* request : {&first, &second}) rig.lun->Submit(request);
  for (TestRequest* request : {&first, &second}) {
    REQUIRE(rig.Answered(*request));
    REQUIRE(request->error == 0);
  }
  const auto events = rig.target.Events();
  REQUIRE(rig.target.Count("write 0") == 1);
  REQUIRE(IndexOf(events, "apply 0") < IndexOf(events, "logout"));
  REQUIRE(IndexOf(events, "logout") < IndexOf(events, "write 128"));
  REQUIRE(rig.state.logins == 2);
}

TEST_CASE("a command that is not answered before the session has to end is sent again in the next one") {
  LunRig rig;
  rig.target.Change([](auto& traits) {
    traits.script = [](const FakeCommand& command) {
      if (command.session > 1) return Reaction{};
      if (command.operation == kRead) return Reaction{Reaction::kHold};
      return command.operation == kWrite ? Telling(iscsi::kLogoutRequested, 0, 1) : Reaction{};
    };
  });
  rig.Start();
  TestRequest read(LunOp::kRead), write(LunOp::kWrite, 4096, 512, 'w');
  for (TestRequest* request : {&read, &write}) rig.lun->Submit(request);
  for (TestRequest* request : {&read, &write}) {
    REQUIRE(rig.Answered(*request, seconds(60)));
    REQUIRE(request->error == 0);
  }
  REQUIRE(rig.target.Count("logout") == 0);
  REQUIRE(rig.state.logins == 2);
}

TEST_CASE("a target that asks for a logout and does not answer it is not waited for as long as it wanted") {
  LunRig rig([](LunOptions& options) {
    options.login_timeout = options.replacement_timeout = std::chrono::hours(1);
  });
  rig.target.Change([](auto& traits) {
    traits.logout_silent = true;
    traits.script = Once(kWrite, Telling(iscsi::kLogoutRequested, 0, 65535));
  });
  rig.Start();
  REQUIRE(rig.Write(0, 'x') == 0);
  TestRequest next(LunOp::kWrite, 512, 512, 'y');
  rig.lun->Submit(&next);
  REQUIRE(rig.Answered(next, seconds(30)));
  REQUIRE(next.error == 0);
  REQUIRE(rig.target.Count("logout") == 1);
  REQUIRE(rig.state.logins == 2);
}

TEST_CASE("a target that wants no login for a while is left alone, but not for ever") {
  const uint16_t wanted = GENERATE(uint16_t{9}, uint16_t{65535});
  TestRequest write(LunOp::kWrite, 0, 512, 'x');  // not answered, so the rig refuses it at its end
  LunRig rig;
  rig.Start();
  SECTION("after a logout") {
    rig.target.Change([&](auto& traits) {
      traits.seconds_to_wait = wanted;
      traits.script = Once(kWrite, Telling(iscsi::kLogoutRequested, 0, 60));
    });
  }
  SECTION("after it ended the session") {
    const uint8_t event = GENERATE(iscsi::kConnectionDropped, iscsi::kSessionDropped);
    rig.target.Change([&](auto& traits) { traits.script = Once(kWrite, Telling(event, wanted, 60)); });
  }
  rig.lun->Submit(&write);
  REQUIRE(WaitsFor(rig, seconds(6)));
  REQUIRE(rig.lun->NextDeadline() <= Lun::Clock::now() + rig.options.login_timeout);
}

TEST_CASE(
    "a portal that wants no login for a while, and is not the only one, is waited for as long as a silent "
    "one") {
  FakeTarget other;
  TestRequest write(LunOp::kWrite, 0, 512, 'x');  // not answered, so the rig refuses it at its end
  LunRig rig([&](LunOptions& options) {
    options.connection.other_portals = {other.portal()};
    options.path_timeout = seconds(20);
    options.login_timeout = options.replacement_timeout = std::chrono::hours(1);
  });
  rig.Start();
  rig.target.Change(
      [&](auto& traits) { traits.script = Once(kWrite, Telling(iscsi::kSessionDropped, 65535, 60)); });
  rig.lun->Submit(&write);
  REQUIRE(WaitsFor(rig, seconds(6)));
  REQUIRE(rig.lun->NextDeadline() <= Lun::Clock::now() + rig.options.path_timeout);
}

TEST_CASE("a target that ends the session costs a reconnect, and news of it nothing") {
  const auto [event, logins] = GENERATE(table<uint8_t, uint64_t>({{iscsi::kConnectionDropped, 2},
                                                                  {iscsi::kSessionDropped, 2},
                                                                  {uint8_t{5}, 2},
                                                                  {iscsi::kScsiEvent, 1},
                                                                  {iscsi::kVendorEvent, 1}}));
  LunRig rig;
  rig.Start();
  rig.target.Change([event = event](auto& traits) { traits.script = Once(kWrite, Telling(event, 0, 0)); });
  REQUIRE(rig.Write(0, 'x') == 0);
  REQUIRE(rig.Write(512, 'y') == 0);
  REQUIRE(rig.state.logins == logins);
}

TEST_CASE("a lost write that an asynchronous message tells of fails what would have made it durable") {
  const bool descriptor = GENERATE(false, true);
  const bool cached = GENERATE(false, true);
  std::vector<uint8_t> message(48 + 20);
  message[49] = 18;
  message[50] = descriptor ? 0x73 : 0x71;
  message[descriptor ? 51 : 52] = 3;
  LunRig rig;
  rig.target.Change([&](auto& traits) {
    traits.write_cache = cached;
    traits.script = Once(kRead, Reaction{Reaction::kTell, 0, 0, 0, 0, message, 0, false});
  });
  rig.Start();
  REQUIRE(rig.Write(0, 'x') == 0);
  TestRequest read(LunOp::kRead);
  REQUIRE(rig.Do(read) == 0);
  // Nobody flushes where there is no cache.
  REQUIRE((cached ? rig.Flush() : rig.Write(512, 'y')) == EIO);
  REQUIRE((cached ? rig.Flush() : rig.Write(512, 'y')) == 0);
}

}  // namespace
}  // namespace lunkeeper
