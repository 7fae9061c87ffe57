#pragma once
// A Lun on a real tgtd, driven on the test's thread.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "base/testing/test_host.h"
#include "devices/iscsi/testing/lun_driver.h"

namespace lunkeeper {

inline constexpr uint64_t kSize = 64 << 20;
inline constexpr char kName[] = "iqn.2026-11.io.lunkeeper:test";
inline constexpr char kInitiator[] = "iqn.2026-11.io.lunkeeper:node";
inline constexpr char kUser[] = "node-a", kSecret[] = "a-secret-of-16-b";
inline constexpr char kTargetSecret[] = "tgts-own-secret-";

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
      for (const int output : {1, 2}) ::dup2(null, output);
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
    const std::string lun = "--op update --mode logicalunit --tid 1 --lun 1 --params ";
    REQUIRE(Admin(lun + "thin_provisioning=1,scsi_sn=serial-1,product_id=0123456789abcdef"));
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
    const std::string command = "tgtadm -C " + control_ + " --lld iscsi " + arguments;
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
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

// What our array sets; the first data of a write goes out unasked.
inline const std::vector<std::string> kParameters = {
    "MaxRecvDataSegmentLength --value 16384", "FirstBurstLength --value 65536",
    "MaxBurstLength --value 262144", "InitialR2T --value No"};

class TgtLunRig : public LunDriver {
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

  Tgtd tgtd;
};

}  // namespace lunkeeper
