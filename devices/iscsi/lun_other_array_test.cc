// A LUN of an array that is not ours: it does not show whether it has lost its cache, and it tells of errors
// in ways that ours does not.

#include <cerrno>

#include "devices/iscsi/testing/lun_rig.h"

namespace lunkeeper {
namespace {

using iscsi::FakeCommand;
using iscsi::Reaction;
using iscsi::Sense;

Reaction DeferredSense(uint8_t key) {
  Reaction reaction = Sense(key, 0x0c);
  reaction.deferred = true;
  return reaction;
}

// Of another maker, with a cache.
struct OtherArrayRig : LunRig {
  explicit OtherArrayRig(bool takes_fua) {
    target.Change([this, takes_fua](auto& traits) {
      traits.product = "VIRTUAL-DISK";
      traits.takes_fua = takes_fua;
      traits.unmap = true;
      traits.script = [this](const FakeCommand& command) {
        if (command.operation == kWrite && command.fua) ++fua_writes;
        return Reaction{};
      };
    });
  }
  ~OtherArrayRig() { Drop(); }
  std::atomic<int> fua_writes = 0;
};

TEST_CASE("a LUN that does not show whether it lost its cache is written through, and so may be lost") {
  const bool takes_fua = GENERATE(true, false);
  OtherArrayRig rig(takes_fua);
  rig.Start();
  REQUIRE(std::string(rig.state.boot_id) == "unknown");
  TestRequest longer(LunOp::kWrite, 4096, 1 << 20, 'l');
  REQUIRE(rig.Write(0, 'a') == 0);
  REQUIRE(rig.Do(longer) == 0);
  CHECK(rig.fua_writes == (takes_fua ? 2 : 0));
  CHECK(rig.target.Count("flush") == (takes_fua ? 0 : 2));
  TestRequest zeroes(LunOp::kWriteZeroes, 512, 512), discard(LunOp::kDiscard, 4096, 4096);
  REQUIRE(rig.Do(zeroes) == 0);
  REQUIRE(rig.Do(discard) == 0);
  CHECK(rig.target.Count("flush") == (takes_fua ? 2 : 4));
  CHECK(rig.state.unflushed() == 0);
  rig.CutAndWait();
  CHECK(rig.state.health == LunHealth::kHealthy);
}

TEST_CASE("a write whose own flush is cut off is written again, and answered once") {
  OtherArrayRig rig(false);
  rig.target.Change([](auto& traits) { traits.script = Once(kFlush, Reaction{Reaction::kDrop}); });
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  CHECK(rig.target.Count("write 0") == 2);
  CHECK(rig.target.Count("flush") == 2);
  CHECK(rig.state.logins == 2);
}

TEST_CASE("an error of a write's own flush is the write's") {
  OtherArrayRig rig(false);
  rig.target.Change([](auto& traits) { traits.script = Once(kFlush, Sense(3, 0x0c)); });
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == EIO);
  REQUIRE(rig.Write(0, 'b') == 0);
}

TEST_CASE("a LUN of another array without a cache needs neither") {
  OtherArrayRig rig(true);
  rig.target.Change([](auto& traits) { traits.write_cache = false; });
  rig.Start();
  REQUIRE(rig.Write(0, 'a') == 0);
  CHECK(rig.fua_writes == 0);
  CHECK(rig.target.Count("flush") == 0);
}

TEST_CASE("a page that a LUN need not have may be refused without a reason, one that it needs may not") {
  const bool optional = GENERATE(true, false);
  LunRig rig([](LunOptions& options) { options.replacement_timeout = milliseconds(500); });
  rig.target.Change([=](auto& traits) {
    traits.script = [=](const FakeCommand& command) {
      const bool is_page = command.operation == 0x12 && command.lba >> 56 == (optional ? 0xb2 : 0x80);
      return is_page ? Sense(0) : Reaction{};
    };
  });
  rig.lun->Start();
  REQUIRE(rig.Becomes(optional ? LunHealth::kHealthy : LunHealth::kFailed));
}

TEST_CASE("a command that brings a deferred error was not carried out, and is sent again") {
  const uint8_t key = GENERATE(uint8_t{1}, uint8_t{3}, uint8_t{4}, uint8_t{6});
  LunRig rig;
  rig.target.Change([key](auto& traits) { traits.script = Once(kWrite, DeferredSense(key)); });
  rig.Start();
  REQUIRE(rig.Write(0, 'w') == 0);
  CHECK(rig.target.Count("write 0") == 2);
  CHECK(rig.target.At(0) == 'w');
  // What was lost is what a flush would have made durable; a recovered error or a unit attention loses
  // nothing.
  CHECK(rig.Flush() == (key == 3 || key == 4 ? EIO : 0));
  CHECK(rig.Flush() == 0);
}

TEST_CASE("a deferred error of a read, or of the flush itself, fails the flush") {
  const uint8_t operation = GENERATE(kRead, kFlush);
  LunRig rig;
  rig.target.Change([=](auto& traits) { traits.script = Once(operation, DeferredSense(3)); });
  rig.Start();
  REQUIRE(rig.Write(0, 'w') == 0);
  TestRequest read(LunOp::kRead);
  REQUIRE(rig.Do(read) == 0);
  REQUIRE(read.buffer[0] == 'w');
  CHECK(rig.Flush() == EIO);
  CHECK(rig.Flush() == 0);
}

TEST_CASE("a deferred error that comes at the login fails the next flush, and no later one") {
  LunRig rig;
  rig.Start();
  REQUIRE(rig.Write(0, 'w') == 0);
  rig.target.Change([](auto& traits) { traits.script = Once(0x00, DeferredSense(3)); });
  rig.CutAndWait();
  REQUIRE(rig.state.health == LunHealth::kHealthy);
  CHECK(rig.Flush() == EIO);
  rig.CutAndWait();
  CHECK(rig.Flush() == 0);
}

TEST_CASE("without a cache nobody has to flush, so a deferred error is told by the next write") {
  LunRig rig;
  rig.target.Change([](auto& traits) {
    traits.write_cache = false;
    traits.script = Once(kWrite, DeferredSense(3));
  });
  rig.Start();
  CHECK(rig.Write(0, 'w') == EIO);
  CHECK(rig.Write(0, 'w') == 0);
}

// The reader has lost nothing, and would keep it to itself.
TEST_CASE("a deferred error that a read brings, of a LUN without a cache, is told to what writes next") {
  LunRig rig;
  rig.target.Change([](auto& traits) {
    traits.write_cache = false;
    traits.script = Once(kRead, DeferredSense(3));
  });
  rig.Start();
  REQUIRE(rig.Write(0, 'w') == 0);
  TestRequest read(LunOp::kRead);
  REQUIRE(rig.Do(read) == 0);
  REQUIRE(read.buffer[0] == 'w');
  CHECK((GENERATE(true, false) ? rig.Flush() : rig.Write(0, 'w')) == EIO);
  CHECK(rig.Write(0, 'w') == 0);
}

TEST_CASE("a lost write that only a worker knew which has died fails the next flush all the same") {
  LunRig rig;
  rig.target.Change([](auto& traits) { traits.script = Once(kRead, DeferredSense(3)); });
  rig.Start();
  REQUIRE(rig.Write(0, 'w') == 0);
  TestRequest read(LunOp::kRead);
  REQUIRE(rig.Do(read) == 0);
  rig.loop.Remove(rig.lun.get());
  rig.lun.reset();
  rig.Make();
  rig.lun->Start();
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
  CHECK(rig.Flush() == EIO);
  CHECK(rig.Flush() == 0);
}

TEST_CASE("what a thin LUN tells of its thresholds, or of a reset by another initiator, is no error") {
  const Reaction told = GENERATE(Sense(6, 0x38, 0x07), Sense(6, 0x2a, 0x09), Sense(6, 0x2f),
                                 Sense(6, 0x29, 3), Sense(6, 0x3f, 0x0e), Reaction{Reaction::kStatus, 0x40});
  LunRig rig;
  rig.target.Change([&](auto& traits) { traits.script = Once(kWrite, told); });
  rig.Start();
  REQUIRE(rig.Write(0, 'w') == 0);
  REQUIRE(rig.state.errors == 0);
  REQUIRE(rig.state.logins == 1);
}

}  // namespace
}  // namespace lunkeeper
