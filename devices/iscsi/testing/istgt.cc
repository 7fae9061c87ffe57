// istgt in the foreground, with a configuration of its own in a temporary folder. It listens once it has read
// that; until then a login is refused, and tried again.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "base/testing/test_host.h"
#include "base/unique_fd.h"
#include "devices/iscsi/testing/other_target.h"

namespace lunkeeper {
namespace {

class Istgt final : public OtherTarget {
 public:
  explicit Istgt(const OtherSettings& settings) {
    for (const char* lun : {"0", "1"}) {
      const UniqueFd image(::open((directory_ / "image" + lun).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
      REQUIRE(::ftruncate(image.get(), kOtherSize) == 0);
    }
    WriteAccounts(settings);
    WriteConfiguration(settings);
    StartServing();
  }
  ~Istgt() override { Stop(); }
  uint16_t port() const override { return port_; }

  void StartServing() override {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = ::open("/dev/null", O_RDWR);
    for (const int descriptor : {0, 1, 2}) ::dup2(null, descriptor);
    const std::string configuration = directory_ / "istgt.conf", pid = directory_ / "pid";
    ::execlp("istgt", "istgt", "-D", "-c", configuration.c_str(), "-p", pid.c_str(), nullptr);
    ::_exit(127);
  }
  void Stop() override {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  void WriteAccounts(const OtherSettings& settings) {
    std::ofstream file(directory_ / "auth.conf");
    file << "[AuthGroup1]\n  Auth \"" << settings.chap.user << "\" \"" << settings.chap.secret << "\"";
    if (!settings.target_chap.secret.empty())
      file << " \"" << settings.target_chap.user << "\" \"" << settings.target_chap.secret << "\"";
    file << "\n";
  }
  void WriteConfiguration(const OtherSettings& settings) {
    const bool chap = !settings.chap.user.empty(), mutual = !settings.target_chap.secret.empty();
    std::ofstream file(directory_ / "istgt.conf");
    file << "[Global]\n  NodeBase \"iqn.2026-11.org.example\"\n  PidFile " << directory_ / "pid"
         << "\n  AuthFile " << directory_ / "auth.conf"
         << "\n  MediaDirectory " << directory_ / "media"
         << "\n  Timeout 30\n  NopInInterval 20\n  MaxR2T 32\n  MaxOutstandingR2T 16\n"
            "[UnitControl]\n  AuthMethod None\n"
            "[PortalGroup1]\n  Portal DA1 "
         << portal()
         << "\n[InitiatorGroup1]\n  InitiatorName \"ALL\"\n  Netmask 127.0.0.1\n"
            "[LogicalUnit1]\n  TargetName "
         << kOtherTarget << "\n  Mapping PortalGroup1 InitiatorGroup1\n  AuthMethod "
         << (mutual ? "CHAP Mutual"
             : chap ? "CHAP"
                    : "None")
         << "\n  AuthGroup AuthGroup1\n  UseDigest Auto\n  UnitType Disk\n  QueueDepth 32\n";
    for (const uint64_t lun : {0, 1}) {
      const std::string number = std::to_string(lun);
      file << "  LUN" << number << " Storage " << directory_ / ("image" + number) << " 64MB\n  LUN" << number
           << " Option Serial \"" << SerialOf(lun) << "\"\n";
    }
  }

  const testing::TempDir directory_{"/dev/shm"};
  const uint16_t port_ = testing::FreePort();
  pid_t pid_ = -1;
};

}  // namespace

std::unique_ptr<OtherTarget> StartIstgt(const OtherSettings& settings) {
  return std::make_unique<Istgt>(settings);
}

}  // namespace lunkeeper
