// The initiator against standard targets that are not ours. Alone it runs against istgt. In the guest, where
// e2e/guest/test_life.py sets LK_LIO, it runs against LIO, with the tests that only LIO can be asked for.

#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

#include "base/testing/stalling_proxy.h"
#include "devices/iscsi/testing/lun_checker.h"
#include "devices/iscsi/testing/other_target.h"

namespace lunkeeper {
namespace {

const ChapCredentials kAccount = {"node-a", "a-secret-of-16-b"}, kItsOwn = {"its-own", "others-own-16-by"};

std::unique_ptr<OtherTarget> StartTarget(const OtherSettings& settings) {
  return std::getenv("LK_LIO") != nullptr ? StartLio(settings) : StartIstgt(settings);
}

LunOptions OptionsFor(const OtherTarget& target, const OtherSettings& settings, uint64_t lun = 0) {
  LunOptions options;
  options.connection.portal = target.portal();
  options.connection.target = Iqn(kOtherTarget);
  options.connection.initiator = Iqn("iqn.2026-11.io.lunkeeper:node");
  options.connection.chap = settings.chap;
  options.connection.target_chap = settings.target_chap;
  options.connection.lun = lun;
  options.serial = OtherTarget::SerialOf(lun);
  options.size_bytes = kOtherSize;
  return options;
}

struct OtherTargetRig : LunDriver {
  explicit OtherTargetRig(const OtherSettings& wanted = {})
      : settings(wanted), target(StartTarget(settings)) {
    options = OptionsFor(*target, settings);
  }
  void Start() {
    Make();
    const bool healthy = Becomes(LunHealth::kHealthy);
    INFO(state.reason.Load());
    REQUIRE(healthy);
  }
  void RequireRefused() {
    Make();
    const bool failed = Becomes(LunHealth::kFailed);
    INFO(state.reason.Load());
    REQUIRE(failed);
    CHECK(state.failure == LunFailure::kRefused);
    CHECK(state.logins == 0);
  }
  // Several writes of this size at once, and then the same reads.
  void RequireRoundTrip(uint64_t size, size_t depth) {
    std::vector<std::vector<char>> data;
    for (size_t i = 0; i < depth; ++i) {
      data.emplace_back(size);
      for (size_t at = 0; at < size; ++at)
        data[i][at] = static_cast<char>(at * 13 + at / 512 + i * 7 + size / 512);
    }
    RequireAll(LunOp::kWrite, data);
    std::vector<std::vector<char>> read(depth, std::vector<char>(size));
    RequireAll(LunOp::kRead, read);
    CAPTURE(size, depth);
    REQUIRE((read == data));
  }
  void RequireAll(LunOp op, std::vector<std::vector<char>>& data) {
    std::vector<BlockRequest> requests(data.size());
    for (size_t i = 0; i < data.size(); ++i) {
      BlockRequest& request = requests[i];
      request.op = op, request.length = data[i].size(), request.offset = 4096 + i * data[i].size();
      request.data = data[i].data();
      request.answered = false;
      lun->Submit(&request);
    }
    REQUIRE(
        loop.RunUntil([&] { return std::ranges::all_of(requests, &BlockRequest::answered); }, seconds(60)));
    REQUIRE(std::ranges::all_of(requests, [](const BlockRequest& request) { return request.error == 0; }));
  }
  // Writes under a checker, in the middle of which `disturb` ends the session, `rounds` times.
  void RequireNothingLost(int rounds, const std::function<void(int round)>& disturb) {
    LunChecker checker(lun.get());
    checker.Begin();
    for (int round = 0; round < rounds; ++round) {
      const uint64_t writes = checker.writes, logins = state.logins;
      REQUIRE(loop.RunUntil([&] { return checker.writes > writes + 100; }, seconds(60)));
      disturb(round);
      REQUIRE(loop.RunUntil([&] { return state.logins > logins; }, seconds(60)));
    }
    const uint64_t writes = checker.writes;
    REQUIRE(loop.RunUntil([&] { return checker.writes > writes + 100; }, seconds(60)));
    checker.Stop();
    REQUIRE(loop.RunUntil([&] { return checker.idle(); }, seconds(60)));
    CHECK(checker.errors == 0);
    CHECK(checker.stale == 0);
  }

  const OtherSettings settings;
  const std::unique_ptr<OtherTarget> target;
};

TEST_CASE("other target: log in without CHAP, with it, and both ways; write, read, flush, close") {
  struct Case {
    OtherSettings settings;
    Digests digests;
  };
  const Case cases[] = {{{}, Digests::kNone},
                        {{.chap = kAccount}, Digests::kHeader},
                        {{.chap = kAccount, .target_chap = kItsOwn}, Digests::kAll}};
  const Case& now = cases[GENERATE(0, 1, 2)];
  OtherTargetRig rig(now.settings);
  rig.options.connection.digests = now.digests;
  rig.Start();
  CHECK(rig.state.size_bytes == kOtherSize);
  CHECK(rig.state.block_size == 512);
  for (const uint64_t size : {512u, 4096u, 65536u, 69632u}) rig.RequireRoundTrip(size, 16);
  rig.RequireRoundTrip(1 << 20, 3);
  rig.RequireRoundTrip(5 << 20, 1);
  rig.RequireRoundTrip(512, 200);
  CHECK(rig.state.unflushed() == 0);  // the target does not show whether it lost its cache
  REQUIRE(rig.Do(LunOp::kFlush, 0, 0) == 0);
  CHECK(rig.Do(LunOp::kRead, kOtherSize, 4096) == EINVAL);
  CHECK(rig.state.logins == 1);
  CHECK(rig.state.errors == 1);
  CHECK(rig.state.digest_errors == 0);
  rig.lun->Close();
  REQUIRE(rig.Becomes(LunHealth::kClosed));
}

TEST_CASE("other target: a wrong secret is refused for good") {
  OtherTargetRig rig({.chap = kAccount});
  rig.options.connection.chap.secret = "another-secret-16";
  rig.RequireRefused();
}

TEST_CASE("other target: without a secret nobody gets in where one is wanted") {
  OtherTargetRig rig({.chap = kAccount});
  rig.options.connection.chap = {};
  rig.options.replacement_timeout = seconds(1);  // LIO closes the connection, without a refusal
  rig.Make();
  REQUIRE(rig.Becomes(LunHealth::kFailed));
  CHECK(rig.state.logins == 0);
}

TEST_CASE("other target: one that cannot prove itself is not used") {
  OtherTargetRig rig({.chap = kAccount, .target_chap = kItsOwn});
  rig.options.connection.target_chap.secret = "of-another-targt";
  rig.options.replacement_timeout = seconds(1);
  rig.Make();
  REQUIRE(rig.Becomes(LunHealth::kFailed));
  CHECK(rig.state.failure == LunFailure::kAway);
  CHECK(rig.state.logins == 0);
}

TEST_CASE("other target: its sessions cut under load, and itself stopped and started, loses nothing") {
  OtherTargetRig rig({.chap = kAccount, .target_chap = kItsOwn});
  rig.Start();
  rig.RequireNothingLost(2, [&rig](int round) {
    if (round > 0) REQUIRE(::shutdown(rig.lun->interest().fd, SHUT_RDWR) == 0);
    if (round > 0) return;
    rig.target->Stop();
    REQUIRE(rig.Becomes(LunHealth::kReconnecting));
    rig.target->StartServing();
  });
  CHECK(rig.state.errors == 0);
}

TEST_CASE("LIO: the first data go out unasked where the target allows that", "[.lio]") {
  OtherTargetRig rig({.solicited = false});
  rig.Start();
  for (const uint64_t size : {4096u, 65536u, 262144u, 266240u, 1u << 20}) rig.RequireRoundTrip(size, 3);
  CHECK(rig.state.logins == 1);
}

TEST_CASE("LIO: two LUNs of one target are served at once, each over a session of its own", "[.lio]") {
  OtherTargetRig rig;
  rig.Start();
  LunDriver second;
  second.options = OptionsFor(*rig.target, rig.settings, 1);
  second.Make();
  rig.loop.Add(second.lun.get());
  REQUIRE(rig.loop.RunUntil([&] { return second.state.health == LunHealth::kHealthy; }, seconds(30)));
  LunChecker checker(rig.lun.get()), other(second.lun.get());
  checker.Begin();
  other.Begin();
  REQUIRE(rig.loop.RunUntil([&] { return checker.writes > 200 && other.writes > 200; }, seconds(60)));
  checker.Stop();
  other.Stop();
  REQUIRE(rig.loop.RunUntil([&] { return checker.idle() && other.idle(); }, seconds(60)));
  CHECK(checker.errors + checker.stale + other.errors + other.stale == 0);
  CHECK(rig.state.logins == 1);
  CHECK(second.state.logins == 1);
}

TEST_CASE("LIO: a reset by another initiator aborts commands in flight, and they are sent again", "[.lio]") {
  OtherTargetRig rig;
  rig.Start();
  LunChecker checker(rig.lun.get());
  checker.Begin();
  for (int round = 0; round < 5; ++round) {
    const uint64_t writes = checker.writes;
    REQUIRE(rig.loop.RunUntil([&] { return checker.writes > writes + 50; }, seconds(60)));
    LunDriver other;  // its login resets the LUN
    other.options = OptionsFor(*rig.target, rig.settings);
    other.options.connection.initiator = Iqn("iqn.2026-11.io.lunkeeper:other-node");
    other.Make();
    rig.loop.Add(other.lun.get());
    REQUIRE(rig.loop.RunUntil([&] { return other.state.health == LunHealth::kHealthy; }, seconds(30)));
    rig.loop.Remove(other.lun.get());
  }
  checker.Stop();
  REQUIRE(rig.loop.RunUntil([&] { return checker.idle(); }, seconds(60)));
  CHECK(checker.errors == 0);
  CHECK(checker.stale == 0);
}

TEST_CASE("LIO: SHA-256 is used both ways where the target chooses it", "[.lio]") {
  OtherTargetRig rig({.chap = kAccount, .target_chap = kItsOwn});
  std::atomic<bool> changed = false;
  // LIO takes the first of the list that its kernel has, so the list is turned round on the way.
  StallingProxy proxy(rig.target->port(), [&changed](int way, std::span<char> bytes) {
    constexpr std::string_view kOffered = "CHAP_A=5,7", kTurned = "CHAP_A=7,5";
    const auto at = std::ranges::search(bytes, kOffered).begin();
    if (way != 0 || at == bytes.end()) return;
    std::ranges::copy(kTurned, at);
    changed = true;
  });
  rig.options.connection.portal = "127.0.0.1:" + std::to_string(proxy.port());
  SECTION("a login, and data") {
    rig.Start();
    rig.RequireRoundTrip(65536, 4);
  }
  SECTION("a wrong secret") {
    rig.options.connection.chap.secret = "another-secret-16";
    rig.RequireRefused();
  }
  CHECK(changed);
}

TEST_CASE("LIO: a LUN with a cache is written through, since it does not show whether it lost that",
          "[.lio]") {
  OtherTargetRig rig({.cache = true});
  rig.Start();
  CHECK(rig.state.write_cache);
  CHECK(std::string(rig.state.boot_id) == "unknown");
  rig.RequireNothingLost(2, [&rig](int) { REQUIRE(::shutdown(rig.lun->interest().fd, SHUT_RDWR) == 0); });
  CHECK(rig.state.unflushed() == 0);
  REQUIRE(rig.Do(LunOp::kWriteZeroes, 0, 65536) == 0);
  std::vector<char> read(65536, 'x');
  REQUIRE(rig.Do(LunOp::kRead, 0, 65536, read.data()) == 0);
  CHECK(read == std::vector<char>(65536));
  REQUIRE(rig.state.unmap);
  rig.RequireRoundTrip(65536, 1);
  REQUIRE(rig.Do(LunOp::kDiscard, 4096, 65536) == 0);
  REQUIRE(rig.Do(LunOp::kRead, 4096, 65536, read.data()) == 0);
  if (rig.state.unmap_zeroes) CHECK(read == std::vector<char>(65536));
  CHECK(rig.state.unflushed() == 0);
}

}  // namespace
}  // namespace lunkeeper
