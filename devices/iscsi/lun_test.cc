// What becomes of requests, on a target that answers.

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>

#include "devices/iscsi/socket.h"
#include "devices/iscsi/testing/lun_rig.h"

namespace lunkeeper {
namespace {

using iscsi::FakeCommand;
using iscsi::Reaction;
using iscsi::Sense;

TEST_CASE("a LUN is reset and identified before it is ready") {
  LunRig rig;
  rig.Start();
  const auto events = rig.target.Events();
  REQUIRE(IndexOf(events, "login") < IndexOf(events, "reset"));
  REQUIRE(IndexOf(events, "reset") < IndexOf(events, "ask"));
  REQUIRE(rig.state.size_bytes == 8192 * 512);
  REQUIRE(rig.state.block_size == 512);
  REQUIRE(rig.state.write_cache);
  REQUIRE(std::string(rig.state.boot_id) == "0123456789abcdef");
}

TEST_CASE("a connection is not paced by BBR, also where that is the system's default") {
  const iscsi::FakeTarget target;
  const UniqueFd fd = iscsi::OpenSocket(*iscsi::ParseAddress(target.portal()));
  char name[16] = {};
  socklen_t size = sizeof name;
  REQUIRE(::getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0);
  REQUIRE_THAT(std::string(name, size), !Catch::StartsWith("bbr"));
}

TEST_CASE("what was written is read, in any size") {
  LunRig rig;
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
  LunRig rig;
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
  LunRig rig([](LunOptions& options) { options.queue_depth = 4; });
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

TEST_CASE("what the LUN only wanted to tell, or to wait for, is not an error") {
  const Reaction reaction = GENERATE(Sense(6, 0x29), Sense(6, 0x2a, 6), Sense(6, 0x2a, 7), Sense(0xb),
                                     Sense(2, 4, 1), Sense(2, 4, 0x0a), Reaction{Reaction::kStatus, 0x08},
                                     Reaction{Reaction::kStatus, 0x28}, Reaction{Reaction::kStatus, 0x40});
  LunRig rig;
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
  LunRig rig;
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

TEST_CASE("a flush covers only what was acknowledged before it was sent") {
  LunRig rig;
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

TEST_CASE("what the LUN cannot do is said so") {
  LunRig rig;
  rig.target.Change([](auto& traits) { traits.script = Once(0x93, Sense(5, 0x20), 100); });
  rig.Start();
  TestRequest discard(LunOp::kDiscard, 0, 4096), zeroes(LunOp::kWriteZeroes, 0, 4096);
  REQUIRE(rig.Do(discard) == EOPNOTSUPP);
  REQUIRE(rig.Do(zeroes) == EOPNOTSUPP);
  REQUIRE(rig.target.Count("unmap") == 0);
  REQUIRE_FALSE(rig.state.write_same);
}

// The kernel then writes zeroes itself, in large commands.
TEST_CASE("a thick LUN without a write cache is not asked for zeroes") {
  LunRig rig;
  rig.target.Change([](auto& traits) { traits.write_cache = false; });
  rig.Start();
  TestRequest zeroes(LunOp::kWriteZeroes, 0, 4096);
  REQUIRE(rig.Do(zeroes) == EOPNOTSUPP);
  REQUIRE(rig.target.Count("write same") == 0);
}

TEST_CASE("discard and zeroes reach a LUN that can, and count as writes to be flushed") {
  LunRig rig;
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
  LunRig rig;
  rig.Start();
  TestRequest beyond(LunOp::kRead, 8192 * 512, 512), wraps(LunOp::kRead, UINT64_MAX - 511, 512),
      unaligned(LunOp::kRead, 100, 512), odd(LunOp::kWrite, 0, 100), nothing(LunOp::kRead, 0, 0);
  for (TestRequest* request : {&beyond, &wraps, &unaligned, &odd}) REQUIRE(rig.Do(*request) == EINVAL);
  REQUIRE(rig.Do(nothing) == 0);
}

TEST_CASE("a read-only attachment refuses to write") {
  LunRig rig([](LunOptions& options) { options.read_only = true; });
  rig.Start();
  REQUIRE(rig.Write(0, 'w') == EROFS);
  TestRequest read(LunOp::kRead);
  REQUIRE(rig.Do(read) == 0);
}

TEST_CASE("a LUN that grew is seen when asked") {
  LunRig rig;
  rig.Start();
  rig.target.Change([](auto& traits) { traits.blocks = 16384; });
  TestRequest ask(LunOp::kReadCapacity);
  REQUIRE(rig.Do(ask) == 0);
  REQUIRE(rig.state.size_bytes == 16384 * 512);
}

TEST_CASE("fail answers everything at once, and close logs out") {
  LunRig rig;
  rig.target.Change([](auto& traits) { traits.script = Once(kRead, Reaction{Reaction::kHold}); });
  rig.Start();
  SECTION("fail") {
    TestRequest in_flight(LunOp::kRead), queued(LunOp::kRead);
    rig.lun->Submit(&in_flight);
    rig.lun->SendQueued();
    rig.lun->Submit(&queued);
    rig.lun->Fail("detached");
    REQUIRE(in_flight.answers == 1);
    REQUIRE(queued.answers == 1);
    REQUIRE(in_flight.error == EIO);
    REQUIRE(rig.state.failure == LunFailure::kRequested);
    REQUIRE(rig.state.reason.Load() == "detached");
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
