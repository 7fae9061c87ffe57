// Digests between a Lun and a real tgtd, with a proxy between them that changes bits, in both directions.

#include <atomic>
#include <cerrno>

#include "base/testing/stalling_proxy.h"
#include "devices/iscsi/testing/lun_checker.h"
#include "devices/iscsi/testing/tgt_lun_rig.h"

namespace lunkeeper {
namespace {

enum Way { kToTarget = 0, kToLun = 1 };
constexpr size_t kHeader = 52;  // with its digest
constexpr size_t kAnyOffset = SIZE_MAX;

std::vector<std::string> With(const char* header, const char* data) {
  std::vector<std::string> parameters = kParameters;
  parameters.push_back(std::string("HeaderDigest --value ") + header);
  parameters.push_back(std::string("DataDigest --value ") + data);
  return parameters;
}

struct DigestTgtRig : TgtLunRig {
  explicit DigestTgtRig(Digests digests,
                        const std::vector<std::string>& parameters = With("CRC32C", "CRC32C"),
                        std::chrono::milliseconds command_timeout = LunOptions().command_timeout)
      : TgtLunRig(parameters) {
    options.connection.digests = digests;
    options.connection.portal = "127.0.0.1:" + std::to_string(proxy.port());
    options.command_timeout = command_timeout;
    Make();
  }
  ~DigestTgtRig() { ways[kToTarget] = ways[kToLun] = 0; }
  void Begin() { REQUIRE(Becomes(LunHealth::kHealthy)); }
  // Changes one bit at `at` of what is next sent this way, as long as nothing else is under way.
  void FlipNext(Way way, size_t at) {
    offset = at;
    ways[way] = 1;
  }
  bool HasFlipped(Way way) const { return ways[way] == 0; }

  std::atomic<int> ways[2] = {};  // how many bits are still to be changed
  std::atomic<size_t> offset = 0, passed[2] = {};
  std::atomic<size_t> at_least = 1;  // only in a transfer of this size
  StallingProxy proxy{tgtd.port(), [this](int way, std::span<char> bytes) {
                        if (ways[way] == 0 || bytes.size() < at_least) return;
                        const size_t any = (passed[way] += bytes.size()) * 7919;
                        const size_t place = offset == kAnyOffset ? any % bytes.size() : offset.load();
                        if (place >= bytes.size()) return;
                        --ways[way];
                        bytes[place] = static_cast<char>(bytes[place] ^ (1 << any % 8));
                      }};
};

// tgtd waits for what a wrong length promises.
struct FlippingTgtRig : DigestTgtRig {
  FlippingTgtRig() : DigestTgtRig(Digests::kAll, With("CRC32C", "CRC32C"), seconds(5)) {}
};

std::vector<char> Pattern(size_t size, int seed) {
  std::vector<char> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i * 13 + i / 512 + static_cast<size_t>(seed));
  return out;
}

TEST_CASE("tgtd: reads, writes, flushes and zeroes with digests, of all sizes") {
  DigestTgtRig rig(GENERATE(Digests::kNone, Digests::kHeader, Digests::kAll));
  rig.Begin();
  for (const uint64_t size : {512u, 4096u, 131072u, 1u << 20, 8u << 20}) {
    std::vector<char> out = Pattern(size, 1), in(size);
    REQUIRE(rig.Do(LunOp::kWrite, 4096, size, out.data()) == 0);
    REQUIRE(rig.Do(LunOp::kRead, 4096, size, in.data()) == 0);
    REQUIRE(in == out);
  }
  REQUIRE(rig.Do(LunOp::kDiscard, 4096, 4096) == 0);
  REQUIRE(rig.Do(LunOp::kWriteZeroes, 8192, 4096) == 0);
  REQUIRE(rig.Do(LunOp::kFlush, 0, 0) == 0);
  CHECK(rig.state.logins == 1);
  CHECK(rig.state.digest_errors == 0);
  rig.lun->Close();
  REQUIRE(rig.Becomes(LunHealth::kClosed));
}

TEST_CASE("tgtd: one that may not use the digests is not used, and it is said why") {
  const bool header = GENERATE(true, false);
  DigestTgtRig rig(Digests::kAll, header ? kParameters : With("CRC32C", "None"));
  REQUIRE_FALSE(rig.loop.RunUntil([&] { return rig.state.logins > 0; }, seconds(1)));
  CHECK(rig.state.health == LunHealth::kConnecting);
  CHECK_THAT(rig.state.reason.Load(),
             Catch::Contains(header ? "does not use header digests" : "data digests"));
}

// Of a header: opcode, flags, additional segments, length, tag, numbers, offset, its digest. Of data: the
// first byte, the middle, the last; their digest.
TEST_CASE("tgtd: one bit changed in either direction is found, and the request repeated") {
  const Way way = GENERATE(kToTarget, kToLun);
  const LunOp op = GENERATE(LunOp::kRead, LunOp::kWrite);
  FlippingTgtRig rig;
  rig.Begin();
  const bool with_data = (op == LunOp::kWrite) == (way == kToTarget);
  std::vector<size_t> places = {0, 1, 4, 5, 7, 16, 24, 28, 40, 47, 48, 51};
  if (with_data) places.insert(places.end(), {kHeader, kHeader + 2000, kHeader + 4095, kHeader + 4099});
  std::vector<char> there = Pattern(4096, 0);
  REQUIRE(rig.Do(LunOp::kWrite, 0, 4096, there.data()) == 0);
  for (const size_t place : places) {
    CAPTURE(way, place);
    const uint64_t logins = rig.state.logins, found = rig.state.digest_errors;
    std::vector<char> in(4096), out = Pattern(4096, static_cast<int>(place) + 5);
    rig.FlipNext(way, place);
    REQUIRE(rig.Do(op, 0, 4096, op == LunOp::kRead ? in.data() : out.data()) == 0);
    REQUIRE(rig.HasFlipped(way));
    CHECK(rig.state.logins == logins + 1);
    CHECK(rig.state.digest_errors - found == (way == kToLun ? 1 : 0));  // the target's own are in its log
    if (op == LunOp::kRead) REQUIRE(in == there);
    if (op == LunOp::kWrite) there = out;
    REQUIRE(rig.Do(LunOp::kRead, 0, 4096, in.data()) == 0);
    REQUIRE(in == there);
  }
}

// Of several bursts: also R2Ts, and the data that are sent for them.
TEST_CASE("tgtd: one bit changed anywhere in a large transfer is found, and the request repeated") {
  const Way way = GENERATE(kToTarget, kToLun);
  const LunOp op = GENERATE(LunOp::kRead, LunOp::kWrite);
  constexpr size_t kLarge = 5 << 20;
  FlippingTgtRig rig;
  rig.Begin();
  std::vector<char> there = Pattern(kLarge, 0), in(kLarge);
  REQUIRE(rig.Do(LunOp::kWrite, 0, kLarge, there.data()) == 0);
  for (int round = 1; round <= 12; ++round) {
    CAPTURE(way, op, round);
    const uint64_t logins = rig.state.logins, found = rig.state.digest_errors;
    std::vector<char> out = Pattern(kLarge, round);
    rig.FlipNext(way, kAnyOffset);
    REQUIRE(rig.Do(op, 0, kLarge, op == LunOp::kRead ? in.data() : out.data()) == 0);
    REQUIRE(rig.HasFlipped(way));
    CHECK(rig.state.logins == logins + 1);
    CHECK(rig.state.digest_errors - found == (way == kToLun ? 1 : 0));
    if (op == LunOp::kWrite) there = out;
    if (op == LunOp::kWrite) REQUIRE(rig.Do(LunOp::kRead, 0, kLarge, in.data()) == 0);
    REQUIRE(in == there);
  }
}

TEST_CASE("tgtd: without digests a changed bit is read, and written, by nobody the wiser") {
  DigestTgtRig rig(Digests::kNone);
  rig.Begin();
  std::vector<char> out = Pattern(4096, 1), in(4096);
  SECTION("read") {
    REQUIRE(rig.Do(LunOp::kWrite, 0, 4096, out.data()) == 0);
    rig.FlipNext(kToLun, kHeader + 100);
  }
  SECTION("written") {
    rig.FlipNext(kToTarget, kHeader + 100);
    REQUIRE(rig.Do(LunOp::kWrite, 0, 4096, out.data()) == 0);
  }
  REQUIRE(rig.Do(LunOp::kRead, 0, 4096, in.data()) == 0);
  CHECK(in != out);
}

TEST_CASE("tgtd: bits change again and again under load, and nothing wrong is read or written") {
  FlippingTgtRig rig;
  rig.Begin();
  LunChecker checker(rig.lun.get());
  checker.Begin();
  for (int round = 0; round < 30; ++round) {
    const Way way = round % 2 == 0 ? kToTarget : kToLun;
    const uint64_t writes = checker.writes, logins = rig.state.logins;
    REQUIRE(rig.loop.RunUntil([&] { return checker.writes > writes + 30; }, seconds(60)));
    rig.FlipNext(way, kAnyOffset);
    REQUIRE(rig.loop.RunUntil([&] { return rig.state.logins > logins; }, seconds(30)));
  }
  checker.Stop();
  REQUIRE(rig.loop.RunUntil([&] { return checker.idle(); }, seconds(60)));
  CHECK(checker.errors == 0);
  CHECK(checker.stale == 0);
  CHECK(rig.state.digest_errors >= 15);
}

TEST_CASE("tgtd: a request that comes changed each time is given up, and the volume lives") {
  const LunOp op = GENERATE(LunOp::kRead, LunOp::kWrite);
  FlippingTgtRig rig;
  rig.Begin();
  rig.at_least = 4096;
  const Way way = op == LunOp::kWrite ? kToTarget : kToLun;
  rig.offset = kHeader + 1000;
  rig.ways[way] = 1000;
  REQUIRE(rig.Do(op, 0, 4096) == EIO);
  CHECK(rig.ways[way] == 1000 - 8);
  CHECK(rig.state.errors == 1);
  CHECK(rig.state.digest_errors == (op == LunOp::kRead ? 8 : 0));
  rig.ways[way] = 0;
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
  REQUIRE(rig.Do(op, 0, 4096) == 0);
}

}  // namespace
}  // namespace lunkeeper
