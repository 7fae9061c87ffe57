// A Lun against a real tgtd on 127.0.0.1: CHAP, cut connections, a killed and restarted target, and a checker
// that no older write overtakes a newer one.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include <catch2/catch.hpp>

#include "base/testing/stalling_proxy.h"
#include "base/testing/test_host.h"
#include "devices/iscsi/lun_loop.h"

namespace lunkeeper {
namespace {

using std::chrono::seconds;

constexpr uint64_t kSize = 64 << 20;
constexpr char kName[] = "iqn.2026-11.io.lunkeeper:test", kInitiator[] = "iqn.2026-11.io.lunkeeper:node";
constexpr char kUser[] = "node-a", kSecret[] = "a-secret-of-16-b", kTargetSecret[] = "tgts-own-secret-";

// A tgtd of its own with one target of one LUN, killed with the object.
class Tgtd {
 public:
  Tgtd(std::vector<std::string> parameters, int slow_ms)
      : parameters_(std::move(parameters)), slow_ms_(slow_ms) {
    const UniqueFd image(::open((directory_ / "image").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    REQUIRE(::ftruncate(image.get(), kSize) == 0);
    std::ofstream(directory_ / "slow-writes-ms") << "0-" << slow_ms_;
    StartServing();
  }
  ~Tgtd() { Kill(); }

  uint16_t port() const { return port_; }
  std::string portal() const { return "127.0.0.1:" + std::to_string(port_); }

  // The portal is opened last: a login never meets a target that is not there yet.
  void StartServing() {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::string other = "portal=127.0.0.1:" + std::to_string(testing::FreePort());
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, 1);
      ::dup2(null, 2);
      if (slow_ms_ > 0) {
        ::setenv("LD_PRELOAD", LK_SLOW_WRITES, 1);
        ::setenv("SLOW_WRITES_FILE", (directory_ / "slow-writes-ms").c_str(), 1);
      }
      ::execlp("tgtd", "tgtd", "-f", "-C", control_.c_str(), "--iscsi", other.c_str(), nullptr);
      ::_exit(127);
    }
    const auto end = Lun::Clock::now() + seconds(10);
    while (!Admin("--op show --mode sys")) REQUIRE(Lun::Clock::now() < end);
    REQUIRE(Admin(std::string("--op new --mode target --tid 1 -T ") + kName));
    for (const std::string& parameter : parameters_) {
      REQUIRE(Admin("--op update --mode target --tid 1 --name " + parameter));
    }
    REQUIRE(Admin("--op new --mode logicalunit --tid 1 --lun 1 -b " + directory_ / "image"));
    REQUIRE(
        Admin("--op update --mode logicalunit --tid 1 --lun 1 --params "
              "thin_provisioning=1,scsi_sn=serial-1,product_id=0123456789abcdef"));
    REQUIRE(Admin(std::string("--op new --mode account --user ") + kUser + " --password " + kSecret));
    REQUIRE(Admin(std::string("--op bind --mode account --tid 1 --user ") + kUser));
    REQUIRE(Admin(std::string("--op new --mode account --user its-own --password ") + kTargetSecret));
    REQUIRE(Admin("--op bind --mode account --tid 1 --user its-own --outgoing"));
    REQUIRE(Admin("--op bind --mode target --tid 1 -I ALL"));
    REQUIRE(Admin("--op new --mode portal --param portal=" + portal()));
  }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // As a fence does: closed to logins, then the session ended.
  void Fence() {
    REQUIRE(Admin("--op unbind --mode target --tid 1 -I ALL"));
    REQUIRE(Admin("--op delete --mode conn --tid 1 --sid 1 --cid 0"));
  }
  bool Admin(const std::string& arguments) {
    const std::string command = "tgtadm -C " + control_ + " --lld iscsi " + arguments + " >/dev/null 2>&1";
    return std::system(command.c_str()) == 0;
  }

 private:
  const std::vector<std::string> parameters_;
  const int slow_ms_;  // writes take up to this long
  const testing::TempDir directory_{"/dev/shm"};
  const uint16_t port_ = testing::FreePort();
  const std::string control_ =
      std::to_string(testing::FreePort() % 30000 + 1000);  // tgtadm wants at most 32767
  pid_t pid_ = -1;
};

struct BlockRequest : LunRequest {
  BlockRequest() {
    data = buffer;
    done = [](LunRequest* request) { static_cast<BlockRequest*>(request)->answered = true; };
  }
  char buffer[4096] = {};
  bool answered = true;
};

// What our array sets; the first data of a write goes out unasked.
const std::vector<std::string> kParameters = {"MaxRecvDataSegmentLength --value 16384",
                                              "FirstBurstLength --value 65536",
                                              "MaxBurstLength --value 262144", "InitialR2T --value No"};

class TgtLunRig {
 public:
  explicit TgtLunRig(const std::vector<std::string>& parameters = kParameters, int slow_ms = 0)
      : tgtd(parameters, slow_ms) {
    options.connection.portal = tgtd.portal();
    options.connection.target = Iqn(kName);
    options.connection.initiator = Iqn(kInitiator);
    options.connection.chap = {kUser, kSecret};
    options.serial = "serial-1";
    options.size_bytes = kSize;
  }
  ~TgtLunRig() { lun->Fail("the test is over"); }
  void Make() {
    lun = MakeLun(options, &state);
    loop.Add(lun.get());
    lun->Start();
  }
  bool Becomes(LunHealth health) {
    return loop.RunUntil([&] { return state.health == health; }, seconds(10));
  }
  int Do(LunOp op, uint64_t offset, uint64_t length, char* data = nullptr) {
    BlockRequest request;
    request.op = op, request.offset = offset, request.length = length;
    if (data != nullptr) request.data = data;
    request.answered = false;
    lun->Submit(&request);
    REQUIRE(loop.RunUntil([&] { return request.answered; }, seconds(20)));
    return request.error;
  }

  Tgtd tgtd;
  LunOptions options;
  LunState state{};
  LunLoop loop;
  std::unique_ptr<Lun> lun;
};

// Writes rising numbers to random blocks of a few, one write a block at a time, and reads them back: a block
// that holds less than what was acknowledged was overtaken by an older write.
class LunChecker {
 public:
  static constexpr uint64_t kBlocks = 64, kDepth = 16;

  explicit LunChecker(Lun* lun) : lun_(lun) {
    for (Slot& slot : slots_) {
      slot.checker = this;
      slot.length = sizeof slot.buffer;
      slot.done = [](LunRequest* request) {
        static_cast<Slot*>(request)->checker->OnDone(*static_cast<Slot*>(request));
      };
    }
  }
  void Begin() {
    stopping_ = false;
    for (Slot& slot : slots_) SubmitNext(slot);
  }
  void Stop() { stopping_ = true; }
  bool idle() const { return pending_ == 0; }

  uint64_t writes = 0, stale = 0, errors = 0;

 private:
  struct Slot : BlockRequest {
    LunChecker* checker;
    uint64_t block;
  };

  void SubmitNext(Slot& slot) {
    do slot.block = random_() % kBlocks;
    while (busy_[slot.block]);
    busy_[slot.block] = true;
    ++pending_;
    slot.op = random_() % 2 == 0 ? LunOp::kRead : LunOp::kWrite;
    slot.offset = slot.block * sizeof slot.buffer;
    const uint64_t number = ++number_;
    if (slot.op == LunOp::kWrite) {
      for (size_t at = 0; at < sizeof slot.buffer; at += 8) std::memcpy(slot.buffer + at, &number, 8);
    }
    lun_->Submit(&slot);
  }

  void OnDone(Slot& slot) {
    --pending_;
    busy_[slot.block] = false;
    uint64_t first, last;
    std::memcpy(&first, slot.buffer, 8);
    std::memcpy(&last, slot.buffer + sizeof slot.buffer - 8, 8);
    if (slot.error != 0) {
      ++errors;
    } else if (slot.op == LunOp::kWrite) {
      acknowledged_[slot.block] = first;
      ++writes;
    } else if (first != acknowledged_[slot.block] || last != first) {
      ++stale;
    }
    if (!stopping_) SubmitNext(slot);
  }

  Lun* const lun_;
  Slot slots_[kDepth];
  uint64_t acknowledged_[kBlocks] = {};
  bool busy_[kBlocks] = {};
  uint64_t number_ = 0;
  int pending_ = 0;
  bool stopping_ = false;
  std::minstd_rand random_{1};
};

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
    REQUIRE(rig.loop.RunUntil([&] { return checker.writes > before + 200; }, seconds(20)));
    rig.tgtd.Kill();
    REQUIRE(rig.Becomes(LunHealth::kReconnecting));
    rig.tgtd.StartServing();
  }
  const uint64_t before = checker.writes;
  REQUIRE(rig.loop.RunUntil([&] { return checker.writes > before + 200; }, seconds(20)));
  checker.Stop();
  REQUIRE(rig.loop.RunUntil([&] { return checker.idle(); }, seconds(20)));
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
    REQUIRE(rig.loop.RunUntil([&] { return checker.writes > writes + writes_between; }, seconds(20)));
    REQUIRE(::shutdown(rig.lun->interest().fd, SHUT_RDWR) == 0);
    REQUIRE(rig.loop.RunUntil([&] { return rig.state.logins > logins; }, seconds(20)));
  }
  checker.Stop();
  REQUIRE(rig.loop.RunUntil([&] { return checker.idle(); }, seconds(20)));
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
  REQUIRE(rig.loop.RunUntil([&] { return checker.writes > 50; }, seconds(20)));
  path.Stall(true);
  REQUIRE(rig.Becomes(LunHealth::kReconnecting));
  const uint64_t before = checker.writes;
  REQUIRE(rig.loop.RunUntil([&] { return checker.writes > before + 50; }, seconds(20)));
  path.Stall(false);  // what was on its way for the old session comes now, and must land nowhere
  REQUIRE(rig.loop.RunUntil([&] { return checker.writes > before + 200; }, seconds(20)));
  checker.Stop();
  REQUIRE(rig.loop.RunUntil([&] { return checker.idle(); }, seconds(20)));
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
