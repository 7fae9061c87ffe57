// What becomes of a LUN whose target has two portals, when one of them is of no use.

#include <atomic>
#include <cerrno>
#include <memory>

#include "base/testing/silent_port.h"
#include "devices/cache_ids.h"
#include "devices/iscsi/silence_watch.h"
#include "devices/iscsi/testing/lun_rig.h"

namespace lunkeeper {
namespace {

using iscsi::FakeCommand;
using iscsi::FakeTarget;
using iscsi::Reaction;

// Somebody else's target, at an address that was used twice.
void MakeStranger(FakeTarget& target) {
  target.Change([](auto& traits) { traits.login_class = 2, traits.login_detail = 3; });  // target not found
}

TEST_CASE("a stranger at one portal ends nothing while another one lets in") {
  FakeTarget stranger;
  MakeStranger(stranger);
  const bool first = GENERATE(false, true);
  LunRig rig([&](LunOptions& options) {
    options.connection.other_portals = {first ? options.connection.portal : stranger.portal()};
    if (first) options.connection.portal = stranger.portal();
  });
  rig.Start();
  rig.target.Change([](auto& traits) { traits.script = Once(kWrite, {Reaction::kSilence}); });
  TestRequest write(LunOp::kWrite, 0, 512, 'x');
  rig.lun->Submit(&write);
  REQUIRE(rig.Answered(write, seconds(60)));
  REQUIRE(write.error == 0);
}

TEST_CASE("a target that refuses at each of its portals is gone for good") {
  FakeTarget other;
  LunRig rig([&](LunOptions& options) { options.connection.other_portals = {other.portal()}; });
  rig.Start();
  MakeStranger(other);
  MakeStranger(rig.target);
  rig.target.Inject({});
  REQUIRE(rig.Becomes(LunHealth::kFailed, seconds(60)));
  REQUIRE(rig.state.failure == LunFailure::kRefused);
}

// As tgtd of a gateway whose agent was stopped, after another gateway has taken the array and grown the
// volume.
TEST_CASE("a portal that does not know how the volume has grown ends nothing while another one serves") {
  FakeTarget before;
  LunRig rig([&](LunOptions& options) { options.connection.other_portals = {before.portal()}; });
  rig.Start();
  rig.target.Change([](auto& traits) { traits.blocks *= 2; });
  TestRequest grown(LunOp::kReadCapacity);
  REQUIRE(rig.Do(grown) == 0);
  SECTION("it is left again") {
    rig.target.Change([](auto& traits) { traits.script = Once(kWrite, {Reaction::kSilence}); });
    TestRequest write(LunOp::kWrite, 0, 512, 'x');
    rig.lun->Submit(&write);
    REQUIRE(rig.Answered(write, seconds(60)));
    REQUIRE(write.error == 0);
    REQUIRE(rig.target.At(0) == 'x');
    REQUIRE(before.Count("login") > 0);
  }
  SECTION("a LUN that is smaller at each portal is another one") {
    rig.target.Change([](auto& traits) { traits.blocks /= 2; });
    rig.target.Inject({});
    REQUIRE(rig.Becomes(LunHealth::kFailed, seconds(60)));
    REQUIRE(rig.state.failure == LunFailure::kOtherLun);
  }
}

// As a broken box in the path does.
TEST_CASE("a portal that ends each session is left for the other one") {
  FakeTarget other;
  LunRig rig([&](LunOptions& options) { options.connection.other_portals = {other.portal()}; });
  SECTION("before the LUN can be used") {
    rig.target.Change([](auto& traits) { traits.reset_drops = true; });
    rig.Start();
  }
  SECTION("at each write") {
    rig.Start();
    rig.target.Change([](auto& traits) {
      traits.script = [](const FakeCommand& command) {
        return Reaction{command.operation == kWrite ? Reaction::kDrop : Reaction::kAnswer};
      };
    });
  }
  REQUIRE(rig.Write(0, 'x') == 0);
  REQUIRE(other.At(0) == 'x');
}

TEST_CASE("the portal in use is told, and each move to another one is counted, also by the next worker") {
  FakeTarget other;
  LunRig rig([&](LunOptions& options) { options.connection.other_portals = {other.portal()}; });
  rig.Start();
  CHECK(rig.state.portal.Load() == rig.target.portal());
  CHECK(rig.state.path_moves == 0);
  CHECK(rig.state.portal_since > 0);
  rig.CutAndWait();  // and logs in at the same one
  CHECK(rig.state.logins == 2);
  CHECK(rig.state.path_moves == 0);
  rig.state.portal_since = 1;
  rig.target.Change([](auto& traits) {
    traits.script = [](const FakeCommand& command) {
      return Reaction{command.operation == kWrite ? Reaction::kDrop : Reaction::kAnswer};
    };
  });
  REQUIRE(rig.Write(0, 'x') == 0);
  CHECK(rig.state.portal.Load() == other.portal());
  CHECK(rig.state.path_moves == 1);
  CHECK(rig.state.portal_since > 1);
  // As a worker that dies. The next one begins with the first portal.
  rig.loop.Remove(rig.lun.get());
  rig.lun.reset();
  rig.Make();
  rig.lun->Start();
  REQUIRE(rig.loop.RunUntil([&] { return rig.state.path_moves == 2; }, seconds(5)));
  CHECK(rig.state.portal.Load() == rig.target.portal());
}

// As gateways of one Ceph are.
struct TwoGateways {
  TwoGateways() {
    for (FakeTarget* target : {&rig.target, &other})
      target->Change([](auto& traits) { traits.product = kNothingCached; });
  }

  FakeTarget other;
  LunRig rig{[this](LunOptions& options) {
    options.connection.other_portals = {other.portal()};
    options.doubt_timeout = seconds(1);
  }};
};

// As of a gateway that was shut out of the storage while it was frozen.
TEST_CASE("an error of the medium at one portal is nobody's while another one carries the command out") {
  TwoGateways gateways;
  auto& [other, rig] = gateways;
  const uint8_t key = GENERATE(3, 4);
  rig.Start();
  rig.target.Change([key](auto& traits) {
    traits.script = [key](const FakeCommand& command) {
      return command.operation == kWrite || command.operation == kRead ? iscsi::Sense(key, 0x11) : Reaction{};
    };
  });
  std::vector<TestRequest> requests;
  for (uint64_t i = 0; i < 20; ++i) requests.emplace_back(LunOp::kWrite, i * 512, 512, 'x');
  for (TestRequest& request : requests) rig.lun->Submit(&request);
  for (TestRequest& request : requests) {
    REQUIRE(rig.Answered(request, seconds(60)));
    REQUIRE(request.error == 0);
  }
  REQUIRE(other.At(19 * 512) == 'x');
  REQUIRE(rig.state.errors == 0);
}

TEST_CASE("an error of the medium that lasts at every portal is passed on, and the next one at once") {
  TwoGateways gateways;
  auto& [other, rig] = gateways;
  rig.Start();
  for (FakeTarget* target : {&rig.target, &other})
    target->Change([](auto& traits) {
      traits.script = [](const FakeCommand& command) {
        return command.operation == kRead ? iscsi::Sense(3, 0x11) : Reaction{};
      };
    });
  TestRequest first(LunOp::kRead), second(LunOp::kRead, 512);
  rig.lun->Submit(&first);
  REQUIRE(rig.Answered(first, seconds(60)));
  REQUIRE(first.error == EIO);
  REQUIRE(rig.Becomes(LunHealth::kHealthy, seconds(60)));
  const uint64_t logins = rig.state.logins;
  REQUIRE(rig.Do(second) == EIO);
  REQUIRE(rig.state.logins == logins);
  REQUIRE(rig.Write(0, 'x') == 0);
}

// Sixteen sessions would be enough to give one up that ends each of them.
TEST_CASE("no other request is given up for the sessions that an error of the medium ends") {
  FakeTarget other;
  LunRig rig([&](LunOptions& options) { options.connection.other_portals = {other.portal()}; });
  const auto errors = std::make_shared<std::atomic<int>>(20);
  for (FakeTarget* target : {&rig.target, &other})
    target->Change([&](auto& traits) {
      traits.product = kNothingCached;
      traits.script = [errors](const FakeCommand& command) {
        if (command.operation == kWrite && *errors > 0) {
          --*errors;
          return iscsi::Sense(3, 0x0c);
        }
        return Reaction{command.operation == kRead && *errors > 0 ? Reaction::kHold : Reaction::kAnswer};
      };
    });
  rig.Start();
  TestRequest read(LunOp::kRead), write(LunOp::kWrite, 512, 512, 'x');
  for (TestRequest* request : {&read, &write}) rig.lun->Submit(request);
  for (TestRequest* request : {&read, &write}) {
    REQUIRE(rig.Answered(*request, seconds(60)));
    REQUIRE(request->error == 0);
  }
}

TEST_CASE("an error in a later part of a long request is passed on too") {
  TwoGateways gateways;
  auto& [other, rig] = gateways;
  for (FakeTarget* target : {&rig.target, &other})
    target->Change([](auto& traits) {
      traits.max_transfer = 1;
      traits.script = [](const FakeCommand& command) {
        return command.operation == kRead && command.lba == 1 ? iscsi::Sense(3, 0x11) : Reaction{};
      };
    });
  rig.Start();
  TestRequest read(LunOp::kRead, 0, 3 * 512);
  rig.lun->Submit(&read);
  REQUIRE(rig.Answered(read, seconds(60)));
  REQUIRE(read.error == EIO);
}

// Linux reports lost writes to one flush of a file, and the next one succeeds. Two networks of one storage
// host lead to the same file.
TEST_CASE("a flush that fails where writes are cached is not asked for again at another portal") {
  FakeTarget other;
  LunRig rig([&](LunOptions& options) { options.connection.other_portals = {other.portal()}; });
  rig.Start();
  REQUIRE(rig.Write(0, 'x') == 0);
  SECTION("a flush") {
    rig.target.Change([](auto& traits) { traits.script = Once(kFlush, iscsi::Sense(3, 0x0c)); });
    REQUIRE(rig.Flush() == EIO);
  }
  SECTION("the flush within a write") {
    rig.target.Change([](auto& traits) { traits.script = Once(kWrite, iscsi::Sense(3, 0x0c)); });
    REQUIRE(rig.Write(512, 'y', true) == EIO);
  }
  REQUIRE(other.connections() == 0);
}

TEST_CASE("a target that is slow at both portals is left less and less often") {
  iscsi::SilenceLimit silence_limit(seconds(2), seconds(10));
  for (const int limit : {2, 4, 8, 10, 10}) {
    REQUIRE(silence_limit.limit() == seconds(limit));
    silence_limit.OnMove();
  }
  silence_limit.OnProgress();
  REQUIRE(silence_limit.limit() == seconds(2));
}

TEST_CASE("a portal that takes connections and never answers a login is left soon") {
  testing::SilentPort silent;
  LunRig rig([&](LunOptions& options) {
    options.connection.other_portals = {options.connection.portal};
    options.connection.portal = silent.portal();
    options.login_timeout = std::chrono::minutes(5);
  });
  silent.FallSilent();
  rig.lun->Start();
  REQUIRE(rig.Becomes(LunHealth::kHealthy, seconds(60)));
}

// The next gateway stands by, with its portal closed, until it has taken the array from the one before.
TEST_CASE("a portal that opens is found while another one keeps the LUN waiting") {
  testing::SilentPort before;
  FakeTarget next(/*open=*/false);
  const bool is_dead = GENERATE(false, true);
  LunRig rig([&](LunOptions& options) {
    options.connection.portal = next.portal();
    options.connection.other_portals = {before.portal()};
    options.path_timeout = options.login_timeout = std::chrono::minutes(5);
    options.command_timeout = std::chrono::minutes(15);
  });
  is_dead ? before.FallSilent() : before.Freeze();
  rig.lun->Start();
  next.Open();
  REQUIRE(rig.Becomes(LunHealth::kHealthy, seconds(60)));
  REQUIRE(next.Count("login") == 1);
}

// A LUN whose reset waits at `rig.target`, which answers pings: of a gateway to which Ceph says nothing, or
// which has lost the array, the old commands are never over.
struct WaitingReset {
  WaitingReset(bool next_is_open, bool next_is_of_a_peer, milliseconds command_timeout)
      : next(next_is_open), rig([&](LunOptions& options) {
          Connection& to = options.connection;
          to.other_portals = {next.portal()};
          if (!next_is_open) std::swap(to.portal, to.other_portals[0]);  // it is asked first, and refuses
          if (next_is_of_a_peer) to.peer_portals = to.other_portals;
          options.path_timeout = seconds(20);  // a busy machine answers pings late
          options.command_timeout = command_timeout;
        }) {
    rig.target.Change([](auto& traits) { traits.reset_pings = 1'000'000; });
    rig.lun->Start();
    REQUIRE(rig.loop.RunUntil([&] { return rig.target.Count("login") == 1; }, seconds(5)));
  }
  bool IsLeft(milliseconds within) {
    return rig.loop.RunUntil([&] { return next.Count("login") > 0; }, within);
  }

  FakeTarget next;
  LunRig rig;
};

TEST_CASE("a target whose old commands do not end is left for another host's portal") {
  const bool is_open = GENERATE(false, true);
  WaitingReset waiting(is_open, /*next_is_of_a_peer=*/true,
                       is_open ? milliseconds(1800) : std::chrono::minutes(15));
  if (!is_open) waiting.next.Open();
  REQUIRE(waiting.IsLeft(seconds(60)));
  REQUIRE(waiting.rig.Write(0, 'x') == 0);
  REQUIRE(waiting.next.At(0) == 'x');
}

// Of two resets tgtd answers one, and keeps the session of the other.
TEST_CASE("a target whose old commands do not end is not left for a portal of the same host") {
  const bool is_open = GENERATE(false, true);
  WaitingReset waiting(is_open, /*next_is_of_a_peer=*/false, milliseconds(600));
  if (!is_open) waiting.next.Open();
  REQUIRE_FALSE(waiting.IsLeft(seconds(3)));
  REQUIRE(waiting.rig.target.Count("login") == 1);
}

// It may lead to the same slow target, and then neither would ever get the time that it needs.
TEST_CASE("a portal that was open all the time takes no LUN away from another one") {
  testing::SilentPort slow, other;
  for (testing::SilentPort* const port : {&slow, &other}) port->Freeze();
  LunRig rig([&](LunOptions& options) {
    options.connection.portal = slow.portal();
    options.connection.other_portals = {other.portal()};
    options.path_timeout = options.login_timeout = std::chrono::minutes(5);
    options.command_timeout = options.replacement_timeout = std::chrono::minutes(15);
  });
  rig.lun->Start();
  const auto waits = [&] { return rig.lun->NextDeadline() > Lun::Clock::now() + seconds(30); };
  REQUIRE(rig.loop.RunUntil(waits, seconds(60)));
}

// Where every target is slow, each would else be left before it could answer.
TEST_CASE("a login gets its whole time once every portal had its turn") {
  testing::SilentPort slow, other;
  for (testing::SilentPort* const port : {&slow, &other}) port->Freeze();
  LunRig rig([&](LunOptions& options) {
    options.connection.portal = slow.portal();
    options.connection.other_portals = {other.portal()};
    options.path_timeout = milliseconds(100);
    options.login_timeout = std::chrono::minutes(5);
    options.replacement_timeout = std::chrono::minutes(15);
  });
  rig.lun->Start();
  const auto waits = [&] { return rig.lun->NextDeadline() > Lun::Clock::now() + seconds(30); };
  REQUIRE(rig.loop.RunUntil(waits, seconds(60)));
}

TEST_CASE("silence is noticed as soon as before, once a move to another portal has led to something") {
  FakeTarget other;
  LunRig rig([&](LunOptions& options) {
    options.connection.other_portals = {other.portal()};
    options.path_timeout = milliseconds(1000);
  });
  rig.Start();
  rig.target.Change([](auto& traits) { traits.script = Once(kWrite, {Reaction::kSilence}); });
  TestRequest write(LunOp::kWrite, 0, 512, 'x');
  rig.lun->Submit(&write);
  REQUIRE(rig.Answered(write, seconds(60)));
  REQUIRE(other.At(0) == 'x');
  // The ping after half of it.
  REQUIRE(rig.lun->NextDeadline() <= Lun::Clock::now() + rig.options.path_timeout / 2);
}

}  // namespace
}  // namespace lunkeeper
