#include "devices/libiscsi/testing/test_target.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

constexpr char kTargetName[] = "iqn.2026-11.io.lunkeeper:test";
constexpr absl::Duration kStartLimit = absl::Seconds(10);

// Starts `args`, output thrown away; in the child, the kernel kills it when this thread's process ends.
pid_t Spawn(const std::vector<std::string>& args) {
  std::vector<char*> argv;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) dup2(null, fd);
  execvp(argv[0], argv.data());
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TestTarget>> TestTarget::Start(uint64_t size_bytes,
                                                              const ChapCredentials& chap) {
  std::unique_ptr<TestTarget> target(new TestTarget);
  target->file_ = target->directory_ / "lun";
  target->chap_ = chap;
  const UniqueFd fd(open(target->file_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0)
    return absl::ErrnoToStatus(errno, "size the LUN's file");
  RETURN_IF_ERROR(target->Launch());
  RETURN_IF_ERROR(target->MakeTarget(chap));
  return target;
}

TestTarget::~TestTarget() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    unlink(absl::StrCat("/var/run/tgtd/socket.", control_port_).c_str());
    unlink(absl::StrCat("/var/run/tgtd/socket.", control_port_, ".lock").c_str());
  }
}

absl::Status TestTarget::Launch() {
  portal_ = absl::StrCat("127.0.0.1:", testing::FreePort());
  control_port_ = 1 + getpid() % 30000;
  while (std::filesystem::exists(absl::StrCat("/var/run/tgtd/socket.", control_port_))) ++control_port_;
  pid_ = Spawn({"tgtd", "-f", "-C", absl::StrCat(control_port_), "-t", "2", "--iscsi", "portal=" + portal_});
  return WaitUntilItAnswers();
}

absl::Status TestTarget::WaitUntilItAnswers() {
  const absl::Time deadline = absl::Now() + kStartLimit;
  while (!Admin({"--op", "show", "--mode", "sys"}).ok()) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_ || absl::Now() > deadline) {
      return absl::UnavailableError(
          absl::StrCat("tgtd does not start on ", portal_, ", control port ", control_port_));
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

absl::Status TestTarget::MakeTarget(const ChapCredentials& chap) {
  RETURN_IF_ERROR(Admin({"--op", "new", "--mode", "target", "--tid", "1", "--targetname", kTargetName}));
  RETURN_IF_ERROR(
      Admin({"--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "--backing-store", file_}));
  RETURN_IF_ERROR(Admin({"--op", "update", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "--params",
                         "vendor_id=LUNKEEPR,product_id=0123456789abcdef,scsi_sn=serial-of-the-test"}));
  if (!chap.user.empty()) {
    RETURN_IF_ERROR(
        Admin({"--op", "new", "--mode", "account", "--user", chap.user, "--password", chap.secret}));
    RETURN_IF_ERROR(Admin({"--op", "bind", "--mode", "account", "--tid", "1", "--user", chap.user}));
  }
  return Admin({"--op", "bind", "--mode", "target", "--tid", "1", "--initiator-address", "ALL"});
}

Connection TestTarget::ConnectionOf(const std::string& initiator) const {
  return {.portal = portal_,
          .target = Iqn(kTargetName),
          .initiator = Iqn("iqn.2026-11.io.lunkeeper:node:" + initiator),
          .lun = 1,
          .chap = chap_};
}

absl::Status TestTarget::Admin(const std::vector<std::string>& args) const {
  std::vector<std::string> command = {"tgtadm", "-C", absl::StrCat(control_port_), "--lld", "iscsi"};
  command.insert(command.end(), args.begin(), args.end());
  int status = 0;
  if (waitpid(Spawn(command), &status, 0) < 0 || status != 0) {
    return absl::InternalError(absl::StrCat("tgtadm failed: ", args[1], " ", args[3]));
  }
  return absl::OkStatus();
}

}  // namespace lunkeeper
