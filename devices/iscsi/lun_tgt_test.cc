// A Lun against a real tgtd on 127.0.0.1: CHAP, cut connections, a killed and restarted target, and a checker
// that no older write overtakes a newer one.

#include <sys/socket.h>

#include "base/testing/stalling_proxy.h"
#include "devices/iscsi/testing/lun_checker.h"
#include "devices/iscsi/testing/tgt_lun_rig.h"

namespace lunkeeper {
namespace {

TEST_CASE("tgtd: log in with CHAP, write, read, flush, discard, zero, close") {
  const std::vector<std::string> settings[] = {
      kParameters,
      {},
      {"ImmediateData --value No"},
      {"MaxRecvDataSegmentLength --value 262144", "FirstBurstLength --value 262144",
       "MaxBurstLength --value 1048576", "InitialR2T --value No"}};
  TgtLunRig rig(settings[GENERATE(0, 1, 2, 3)]);
  rig.Make();
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
  REQUIRE(rig.state.size_bytes == kSize);
  REQUIRE(std::string(rig.state.boot_id) == "0123456789abcdef");
  REQUIRE(rig.state.unmap_zeroes);
  for (const uint64_t size : {512u, 4096u, 131072u, 1u << 20, 8u << 20}) {
    std::vector<char> out(size), in(size);
    for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i * 13 + i / 4096);
    REQUIRE(rig.Do(LunOp::kWrite, 4096, size, out.data()) == 0);
    REQUIRE(rig.Do(LunOp::kRead, 4096, size, in.data()) == 0);
    REQUIRE(in == out);
  }
  REQUIRE(rig.state.unflushed() == 5);
  REQUIRE(rig.Do(LunOp::kFlush, 0, 0) == 0);
  REQUIRE(rig.state.unflushed() == 0);
  std::vector<char> in(8192);
  REQUIRE(rig.Do(LunOp::kDiscard, 4096, 4096) == 0);
  REQUIRE(rig.Do(LunOp::kWriteZeroes, 8192, 4096) == 0);
  REQUIRE(rig.Do(LunOp::kRead, 4096, 8192, in.data()) == 0);
  REQUIRE(in == std::vector<char>(8192));
  rig.lun->Close();
  REQUIRE(rig.Becomes(LunHealth::kClosed));
}

TEST_CASE("tgtd: a wrong secret is refused for good, without naming it") {
  TgtLunRig rig;
  rig.options.connection.chap.secret = "another-secret-16";
  rig.Make();
  REQUIRE(rig.Becomes(LunHealth::kFailed));
  REQUIRE_THAT(rig.state.reason.Load(),
               Catch::Contains("authentication failed") && !Catch::Contains("another"));
}

TEST_CASE("tgtd: it proves itself, also after it was started again; one that cannot is not used") {
  TgtLunRig rig;
  rig.options.connection.target_chap = {"its-own", kTargetSecret};
  SECTION("it can") {
    rig.Make();
    REQUIRE(rig.Becomes(LunHealth::kHealthy));
    rig.tgtd.Kill();
    REQUIRE(rig.Becomes(LunHealth::kReconnecting));
    rig.tgtd.StartServing();
    REQUIRE(rig.Becomes(LunHealth::kHealthy));
    REQUIRE(rig.Do(LunOp::kFlush, 0, 0) == 0);
  }
  SECTION("it has another secret") {
    rig.options.connection.target_chap.secret = "of-another-target";
    rig.options.replacement_timeout = seconds(1);
    rig.Make();
    REQUIRE(rig.Becomes(LunHealth::kFailed));
    REQUIRE(rig.state.logins == 0);
    REQUIRE_THAT(rig.state.reason.Load(), !Catch::Contains("of-another"));
  }
}

TEST_CASE("tgtd: no secret where one is wanted is refused for good") {
  TgtLunRig rig;
  rig.options.connection.chap = {};
  rig.Make();
  REQUIRE(rig.Becomes(LunHealth::kFailed));
}

TEST_CASE("tgtd: killed and restarted, I/O goes on and nothing is lost") {
  TgtLunRig rig;
  rig.Make();
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
  LunChecker checker(rig.lun.get());
  checker.Begin();
  for (int round = 0; round < 3; ++round) {
    const uint64_t before = checker.writes;
    REQUIRE(rig.loop.RunUntil([&] { return checker.writes > before + 200; }, seconds(60)));
    rig.tgtd.Kill();
    REQUIRE(rig.Becomes(LunHealth::kReconnecting));
    rig.tgtd.StartServing();
  }
  const uint64_t before = checker.writes;
  REQUIRE(rig.loop.RunUntil([&] { return checker.writes > before + 200; }, seconds(60)));
  checker.Stop();
  REQUIRE(rig.loop.RunUntil([&] { return checker.idle(); }, seconds(60)));
  REQUIRE(checker.errors == 0);
  REQUIRE(checker.stale == 0);
  REQUIRE(rig.state.logins == 4);
}

// Cuts the connection `rounds` times, each after some more writes, under a checker.
void CutUnderChecker(TgtLunRig& rig, int rounds, uint64_t writes_between) {
  rig.Make();
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
  LunChecker checker(rig.lun.get());
  checker.Begin();
  for (int round = 0; round < rounds; ++round) {
    const uint64_t writes = checker.writes, logins = rig.state.logins;
    REQUIRE(rig.loop.RunUntil([&] { return checker.writes > writes + writes_between; }, seconds(60)));
    REQUIRE(::shutdown(rig.lun->interest().fd, SHUT_RDWR) == 0);
    REQUIRE(rig.loop.RunUntil([&] { return rig.state.logins > logins; }, seconds(60)));
  }
  checker.Stop();
  REQUIRE(rig.loop.RunUntil([&] { return checker.idle(); }, seconds(60)));
  REQUIRE(checker.errors == 0);
  REQUIRE(checker.stale == 0);
}

TEST_CASE("tgtd: connections cut again and again, nothing is lost") {
  TgtLunRig rig;
  CutUnderChecker(rig, 20, 50);
}

TEST_CASE("tgtd: connections cut while writes are slow, no older write overtakes a newer one") {
  TgtLunRig rig(kParameters, 300);
  CutUnderChecker(rig, 12, 20);
}

// The first portal is behind a proxy that falls silent; the second is tgtd's own.
TEST_CASE("tgtd: a portal that is cut silently under load is left for another one, and nothing is lost") {
  TgtLunRig rig(kParameters, 300);
  StallingProxy path(rig.tgtd.port());
  rig.options.connection.other_portals = {rig.options.connection.portal};
  rig.options.connection.portal = "127.0.0.1:" + std::to_string(path.port());
  rig.options.command_timeout = std::chrono::minutes(5);  // by which nothing is noticed here
  rig.Make();
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
  LunChecker checker(rig.lun.get());
  checker.Begin();
  REQUIRE(rig.loop.RunUntil([&] { return checker.writes > 50; }, seconds(60)));
  path.Stall(true);
  REQUIRE(rig.Becomes(LunHealth::kReconnecting));
  const uint64_t before = checker.writes;
  REQUIRE(rig.loop.RunUntil([&] { return checker.writes > before + 50; }, seconds(60)));
  path.Stall(false);  // what was on its way for the old session comes now, and must land nowhere
  REQUIRE(rig.loop.RunUntil([&] { return checker.writes > before + 200; }, seconds(60)));
  checker.Stop();
  REQUIRE(rig.loop.RunUntil([&] { return checker.idle(); }, seconds(60)));
  REQUIRE(checker.errors == 0);
  REQUIRE(checker.stale == 0);
  REQUIRE(rig.state.logins == 2);
}

TEST_CASE("tgtd: a fenced LUN fails for good") {
  TgtLunRig rig;
  rig.Make();
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
  rig.tgtd.Fence();
  REQUIRE(rig.Becomes(LunHealth::kFailed));
  REQUIRE(rig.Do(LunOp::kRead, 0, 4096) == EIO);
  REQUIRE_THAT(rig.state.reason.Load(), Catch::Contains("target not found"));
}

}  // namespace
}  // namespace lunkeeper
