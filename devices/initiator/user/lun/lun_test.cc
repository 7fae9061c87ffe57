// A Lun against a target that misbehaves on demand.

#include <cerrno>
#include <cstring>

#include <catch2/catch.hpp>

#include "devices/initiator/user/lun/fake_target.h"
#include "devices/initiator/user/lun/lun_loop.h"

namespace lunkeeper {
namespace {

using iscsi::FakeCommand;
using iscsi::FakeTarget;
using iscsi::Reaction;
using iscsi::Sense;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint8_t kRead = 0x88, kWrite = 0x8a, kFlush = 0x91;

// A request with memory of its own, which notes the order in which requests were answered.
struct TestRequest : LunRequest {
  explicit TestRequest(LunOp wanted, uint64_t at = 0, uint64_t size = 512, char fill = '\0')
      : buffer(size, fill) {
    op = wanted, offset = at, length = size, data = buffer.data();
    done = [](LunRequest* request) { static_cast<TestRequest*>(request)->answers++; };
  }
  std::vector<char> buffer;
  int answers = 0;
};

class Rig {
 public:
  explicit Rig(const std::function<void(LunOptions&)>& adjust = [](LunOptions&) {}) {
    options.connection.portal = target.portal();
    options.connection.target = Iqn("iqn.2026-11.io.lunkeeper:test");
    options.connection.initiator = Iqn("iqn.2026-11.io.lunkeeper:node");
    options.serial = "serial-1";
    options.size_bytes = 8192 * 512;
    adjust(options);
    Make();
  }
  ~Rig() { Drop(); }

  void Make() {
    lun = MakeLun(options, &state);
    loop.Add(lun.get());
  }
  void Drop() {
    if (lun == nullptr) return;
    lun->Fail("the test is over");
    loop.Remove(lun.get());
    lun.reset();
  }
  bool Becomes(LunHealth health, milliseconds limit = seconds(5)) {
    return loop.RunUntil([&] { return state.health == health; }, limit);
  }
  void Start() {
    lun->Start();
    REQUIRE(Becomes(LunHealth::kHealthy));
  }
  bool Answered(const TestRequest& request, milliseconds limit = seconds(5)) {
    return loop.RunUntil([&] { return request.answers > 0; }, limit);
  }
  // Submits, waits, and answers with the error.
  int Do(TestRequest& request) {
    lun->Submit(&request);
    REQUIRE(Answered(request));
    REQUIRE(request.answers == 1);
    return request.error;
  }
  int Write(uint64_t at, char fill, bool fua = false) {
    TestRequest request(LunOp::kWrite, at, 512, fill);
    request.fua = fua;
    return Do(request);
  }
  int Flush() {
    TestRequest request(LunOp::kFlush);
    return Do(request);
  }
  void CutAndWait() {
    const uint64_t before = state.logins;
    target.Inject({});
    REQUIRE(loop.RunUntil([&] { return state.logins > before || state.health == LunHealth::kFailed; },
                          seconds(5)));
  }

  FakeTarget target;
  LunOptions options;
  LunState state{};
  LunLoop loop;
  std::unique_ptr<Lun> lun;
};

// Lets `reaction` befall the first `times` commands with this operation code.
FakeTarget::Script Once(uint8_t operation, Reaction reaction, int times = 1) {
  auto left = std::make_shared<std::atomic<int>>(times);
  return [=](const FakeCommand& command) {
    return command.operation == operation && left->fetch_sub(1) > 0 ? reaction : Reaction{};
  };
}

size_t IndexOf(const std::vector<std::string>& events, const std::string& event, size_t from = 0) {
  const auto at = std::find(events.begin() + static_cast<long>(from), events.end(), event);
  REQUIRE(at != events.end());
  return static_cast<size_t>(at - events.begin());
}

TEST_CASE("a LUN is reset and identified before it is ready") {
  Rig rig;
  rig.Start();
  const auto events = rig.target.Events();
  REQUIRE(IndexOf(events, "login") < IndexOf(events, "reset"));
  REQUIRE(IndexOf(events, "reset") < IndexOf(events, "ask"));
  REQUIRE(rig.state.size_bytes == 8192 * 512);
  REQUIRE(rig.state.block_size == 512);
  REQUIRE(rig.state.write_cache);
  REQUIRE(std::string(rig.state.boot_id) == "0123456789abcdef");
}

TEST_CASE("what was written is read, in any size") {
  Rig rig;
  rig.Start();
  for (const uint64_t size : {512u, 4096u, 16384u, 16896u, 262144u, 1048576u}) {
    TestRequest write(LunOp::kWrite, 512, size);
    for (size_t i = 0; i < size; ++i) write.buffer[i] = static_cast<char>(i * 7 + size);
    REQUIRE(rig.Do(write) == 0);
    TestRequest read(LunOp::kRead, 512, size);
    REQUIRE(rig.Do(read) == 0);
    REQUIRE(read.buffer == write.buffer);
  }
}

TEST_CASE("a request that is longer than the LUN's limit is split") {
  Rig rig;
  rig.target.Change([](auto& traits) { traits.max_transfer = 8; });
  rig.Start();
  TestRequest write(LunOp::kWrite, 0, 3 * 4096 + 512, 'w');
  REQUIRE(rig.Do(write) == 0);
  for (const char* part : {"write 0", "write 8", "write 16", "write 24"})
    REQUIRE(rig.target.Count(part) == 1);
  TestRequest read(LunOp::kRead, 0, write.length);
  REQUIRE(rig.Do(read) == 0);
  REQUIRE(read.buffer == write.buffer);
}

TEST_CASE("more requests than the depth, or than the target's window, all get done") {
  const uint32_t window = GENERATE(1u, 3u, 32u);
  Rig rig([](LunOptions& options) { options.queue_depth = 4; });
  rig.target.Change([window](auto& traits) { traits.window = window; });
  rig.Start();
  std::vector<std::unique_ptr<TestRequest>> requests;
  for (uint64_t i = 0; i < 100; ++i) {
    requests.push_back(
        std::make_unique<TestRequest>(LunOp::kWrite, i * 512, 512, static_cast<char>('a' + i % 26)));
    rig.lun->Submit(requests.back().get());
  }
  for (const auto& request : requests) {
    REQUIRE(rig.Answered(*request));
    REQUIRE(request->error == 0);
  }
  REQUIRE(rig.target.Count("wrong CmdSN") == 0);
}

TEST_CASE("after a lost connection nothing is sent again before the LUN reset was answered") {
  Rig rig;
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
  REQUIRE(rig.loop.RunUntil([&] { return rig.target.Count("write 1") == 1; }, seconds(5)));
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

TEST_CASE("a reset that is not answered is asked for again, and nothing is sent before it was") {
  Rig rig([](LunOptions& options) { options.command_timeout = milliseconds(600); });
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
  Rig rig;
  rig.Start();
  REQUIRE(rig.Write(512, 'r') == 0);
  rig.target.Change([&](auto& traits) { traits.script = Once(kRead, reaction); });
  TestRequest read(LunOp::kRead, 512, 65536);
  REQUIRE(rig.Do(read) == 0);
  REQUIRE(read.buffer[0] == 'r');
  REQUIRE(read.buffer[1024] == '\0');  // nothing of a half answer is left
  REQUIRE(rig.target.Count("login") == 2);
}

TEST_CASE("what the LUN only wanted to tell, or to wait for, is not an error") {
  const Reaction reaction =
      GENERATE(Sense(6, 0x29), Sense(0xb), Sense(2, 4, 1), Reaction{Reaction::kStatus, 0x08},
               Reaction{Reaction::kStatus, 0x28}, Reaction{Reaction::kStatus, 0x40});
  Rig rig;
  rig.target.Change([&](auto& traits) { traits.script = Once(kWrite, reaction, 3); });
  rig.Start();
  REQUIRE(rig.Write(0, 'w') == 0);
  REQUIRE(rig.target.Count("write 0") == 4);
  REQUIRE(rig.target.At(0) == 'w');
  REQUIRE(rig.state.logins == 1);
}

TEST_CASE("an error of the LUN is the error of that request alone") {
  struct Case {
    Reaction reaction;
    int error;
  };
  const auto [reaction, error] = GENERATE(
      Case{Sense(3, 0x11), EIO}, Case{Sense(4), EIO}, Case{Sense(5, 0x21), EIO}, Case{Sense(7, 0x27), EROFS},
      Case{Sense(7, 0x27, 7), ENOSPC}, Case{Reaction{Reaction::kStatus, 0x18}, EIO}, Case{Sense(0), EIO});
  Rig rig;
  rig.target.Change([&, reaction = reaction](auto& traits) {
    traits.script = [=](const FakeCommand& command) {
      return command.operation == kWrite && command.lba == 1 ? reaction : Reaction{};
    };
  });
  rig.Start();
  TestRequest before(LunOp::kWrite, 0, 512, 'b'), bad(LunOp::kWrite, 512, 512),
      after(LunOp::kWrite, 1024, 512, 'a');
  for (TestRequest* request : {&before, &bad, &after}) rig.lun->Submit(request);
  REQUIRE(rig.Answered(after));
  REQUIRE(before.error == 0);
  REQUIRE(bad.error == error);
  REQUIRE(after.error == 0);
  REQUIRE(rig.state.health == LunHealth::kHealthy);
  REQUIRE(rig.state.errors == 1);
}

TEST_CASE("a refused login is for good, whatever the target says later") {
  Rig rig;
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
  REQUIRE_THAT(rig.state.reason, Catch::Contains("target not found"));
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
  Rig rig;
  rig.target.Change([](auto& traits) { traits.login_class = 3; });
  rig.lun->Start();
  REQUIRE(rig.loop.RunUntil([&] { return rig.target.Count("refused login") >= 2; }, seconds(5)));
  REQUIRE(rig.state.health == LunHealth::kConnecting);
  rig.target.Change([](auto& traits) { traits.login_class = 0; });
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
}

TEST_CASE("a target that stays away for the replacement time-out is given up") {
  Rig rig([](LunOptions& options) { options.replacement_timeout = milliseconds(400); });
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
  Rig rig;
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  REQUIRE(rig.Write(512, 'b') == 0);
  REQUIRE(rig.state.unflushed() == 2);
  rig.target.Change([](auto& traits) { traits.product = "fedcba9876543210"; });
  rig.CutAndWait();
  REQUIRE(rig.state.health == LunHealth::kFailed);
  REQUIRE_THAT(rig.state.reason,
               Catch::Contains("storage host restarted before 2 acknowledged writes were flushed"));
}

TEST_CASE("a storage host that restarted with everything flushed is met again") {
  const int kind = GENERATE(0, 1, 2, 3);
  Rig rig;
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
  Rig rig;
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  rig.CutAndWait();
  REQUIRE(rig.state.health == LunHealth::kHealthy);
  REQUIRE(rig.state.unflushed() == 1);
  REQUIRE(rig.Flush() == 0);
  REQUIRE(rig.state.unflushed() == 0);
}

TEST_CASE("a flush covers only what was acknowledged before it was sent") {
  Rig rig;
  std::atomic<bool> hold = true;
  rig.target.Change([&](auto& traits) {
    traits.script = [&](const FakeCommand& command) {
      return command.operation == kFlush && hold ? Sense(2, 4, 1) : Reaction{};
    };
  });
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  SECTION("and one that failed covers nothing") {
    rig.target.Change([](auto& traits) { traits.script = Once(kFlush, Sense(3, 0x0c)); });
    REQUIRE(rig.Flush() == EIO);
    REQUIRE(rig.state.unflushed() == 1);
  }
  SECTION("or, having been refused, sent again") {
    TestRequest flush(LunOp::kFlush);
    rig.lun->Submit(&flush);
    REQUIRE(rig.loop.RunUntil([&] { return rig.target.Count("flush") > 0; }, seconds(5)));
    hold = false;
    REQUIRE(rig.Answered(flush));
    REQUIRE(rig.state.unflushed() == 0);
  }
  SECTION("not what came while it was under way") {
    // The flush and a write leave together; the write is acknowledged first or second, but after the flush
    // was sent.
    hold = false;
    TestRequest flush(LunOp::kFlush), write(LunOp::kWrite, 512, 512, 'b');
    rig.lun->Submit(&flush);
    rig.lun->Submit(&write);
    REQUIRE(rig.Answered(flush));
    REQUIRE(rig.Answered(write));
    REQUIRE(rig.state.unflushed() == 1);
  }
}

TEST_CASE("a successor goes on where the process before it stopped") {
  Rig rig;
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
  Rig rig;
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
  Rig rig;
  rig.target.Change([](auto& traits) { traits.reset_response = 5; });
  rig.lun->Start();
  REQUIRE(rig.Becomes(LunHealth::kFailed));
  REQUIRE_THAT(rig.state.reason, Catch::Contains("cannot reset"));
}

TEST_CASE("a target that falls silent, busy or idle, is left and met again") {
  Rig rig([](LunOptions& options) { options.command_timeout = milliseconds(600); });
  rig.target.Change([](auto& traits) { traits.script = Once(kRead, Reaction{Reaction::kSilence}); });
  rig.Start();
  TestRequest read(LunOp::kRead);
  REQUIRE(rig.Do(read) == 0);
  REQUIRE(rig.target.Count("login") == 2);
  REQUIRE(rig.loop.RunUntil([&] { return rig.target.Count("ping") >= 2; }, seconds(5)));
  REQUIRE(rig.state.logins == 2);
}

TEST_CASE("a command that is never answered ends the connection although others are") {
  Rig rig([](LunOptions& options) { options.command_timeout = milliseconds(500); });
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
  Rig rig;
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

TEST_CASE("what the LUN cannot do is said so") {
  Rig rig;
  rig.target.Change([](auto& traits) { traits.script = Once(0x93, Sense(5, 0x20), 100); });
  rig.Start();
  TestRequest discard(LunOp::kDiscard, 0, 4096), zeroes(LunOp::kWriteZeroes, 0, 4096);
  REQUIRE(rig.Do(discard) == EOPNOTSUPP);
  REQUIRE(rig.Do(zeroes) == EOPNOTSUPP);
  REQUIRE(rig.target.Count("unmap") == 0);
  REQUIRE_FALSE(rig.state.write_same);
}

TEST_CASE("discard and zeroes reach a LUN that can, and count as writes to be flushed") {
  Rig rig;
  const bool by_write_same = GENERATE(false, true);
  rig.target.Change([=](auto& traits) { traits.unmap = true, traits.write_same_unmap = by_write_same; });
  rig.Start();
  REQUIRE(rig.state.unmap_zeroes);
  REQUIRE(rig.Write(512, 'x') == 0);
  TestRequest discard(LunOp::kDiscard, 4096, 4096), zeroes(LunOp::kWriteZeroes, 512, 512);
  REQUIRE(rig.Do(discard) == 0);
  REQUIRE(rig.target.Count(by_write_same ? "write same 8" : "unmap") == 1);
  REQUIRE(rig.Do(zeroes) == 0);
  REQUIRE(rig.target.At(512) == '\0');
  REQUIRE(rig.state.unflushed() == 3);
}

TEST_CASE("requests outside the LUN, or not in blocks, are refused") {
  Rig rig;
  rig.Start();
  TestRequest beyond(LunOp::kRead, 8192 * 512, 512), wraps(LunOp::kRead, UINT64_MAX - 511, 512),
      unaligned(LunOp::kRead, 100, 512), odd(LunOp::kWrite, 0, 100), nothing(LunOp::kRead, 0, 0);
  for (TestRequest* request : {&beyond, &wraps, &unaligned, &odd}) REQUIRE(rig.Do(*request) == EINVAL);
  REQUIRE(rig.Do(nothing) == 0);
}

TEST_CASE("a read-only attachment refuses to write") {
  Rig rig([](LunOptions& options) { options.read_only = true; });
  rig.Start();
  REQUIRE(rig.Write(0, 'w') == EROFS);
  TestRequest read(LunOp::kRead);
  REQUIRE(rig.Do(read) == 0);
}

TEST_CASE("a LUN that grew is seen when asked") {
  Rig rig;
  rig.Start();
  rig.target.Change([](auto& traits) { traits.blocks = 16384; });
  TestRequest ask(LunOp::kReadCapacity);
  REQUIRE(rig.Do(ask) == 0);
  REQUIRE(rig.state.size_bytes == 16384 * 512);
}

TEST_CASE("fail answers everything at once, and close logs out") {
  Rig rig;
  rig.target.Change([](auto& traits) { traits.script = Once(kRead, Reaction{Reaction::kHold}); });
  rig.Start();
  SECTION("fail") {
    TestRequest in_flight(LunOp::kRead), queued(LunOp::kRead);
    rig.lun->Submit(&in_flight);
    rig.lun->Kick();
    rig.lun->Submit(&queued);
    rig.lun->Fail("detached");
    REQUIRE(in_flight.answers == 1);
    REQUIRE(queued.answers == 1);
    REQUIRE(in_flight.error == EIO);
    REQUIRE(std::string(rig.state.reason) == "detached");
    REQUIRE(rig.lun->interest().fd == -1);
  }
  SECTION("close") {
    rig.lun->Close();
    REQUIRE(rig.Becomes(LunHealth::kClosed));
    REQUIRE(rig.target.Count("logout") == 1);
  }
}

}  // namespace
}  // namespace lunkeeper
