#include "devices/datapath/testing/rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/units.h"
#include "devices/datapath/user_initiator.h"

namespace lunkeeper::testing {
namespace {

constexpr char kSecret[] = "sixteen-letters!";

std::vector<char*> Arguments(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  return arguments;
}

// What can be read of it: a process in /proc may end meanwhile, at which an iterator would throw.
std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Each tgtd is an array of its own.
std::string NameOf(int port, int number) {
  return absl::StrCat("iqn.2026-11.io.lunkeeper:test", port, ":v", number, ":1");
}

}  // namespace

void Eventually(const std::string& what, const std::function<bool()>& condition, absl::Duration limit) {
  if (!Eventually(condition, limit)) FAIL("not in time: " << what);
}

pid_t Spawn(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> arguments = Arguments(command);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // not even a crash of the test leaves it behind
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  REQUIRE(child > 0);
  return child;
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"), gone)) {
    std::ifstream file(task.path() / "children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  return children;
}

bool IsUninterruptible(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.compare(name_end, 3, ") D") == 0;
}

bool HasWaitingChild(pid_t pid) {
  const std::vector<pid_t> children = ChildrenOf(pid);
  return std::any_of(children.begin(), children.end(), IsUninterruptible);
}

AttachRequest RequestFor(const iscsi::FakeTarget& target) {
  AttachRequest request;
  request.volume = VolumeId("test:fake");
  request.connection = {.portal = target.portal(),
                        .target = Iqn("iqn.2026-11.io.lunkeeper:test:fake:1"),
                        .initiator = Iqn("iqn.2026-11.io.lunkeeper:node:test"),
                        .lun = 1,
                        .chap = {}};
  request.serial = "serial-1";
  request.size_bytes = 4 * kMiB;
  return request;
}

bool IsBound(const std::string& device) {
  return std::filesystem::exists(absl::StrCat("/sys/block/", device.substr(5), "/loop"));
}

void KillAndWait(pid_t pid) {
  if (pid <= 0) return;
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

Ran Run(const std::vector<std::string>& command) {
  std::string log = "/tmp/lk-run-XXXXXX";
  ::close(::mkostemp(log.data(), O_CLOEXEC));
  int status = 0;
  ::waitpid(Spawn(command, log), &status, 0);
  Ran ran{WIFEXITED(status) ? WEXITSTATUS(status) : 128, Slurp(log)};
  ::unlink(log.c_str());
  return ran;
}

std::string MustRun(const std::vector<std::string>& command) {
  const Ran ran = Run(command);
  INFO(command[0] << ": " << ran.output);
  REQUIRE(ran.exit_code == 0);
  return ran.output;
}

Target::Target(const TempDir& dir, bool in_memory)
    : dir_(dir), memory_(in_memory ? absl::StrCat("/dev/shm/lk-", ::getpid(), "-", FreePort()) : "") {
  if (!memory_.empty()) std::filesystem::create_directory(memory_);
  port_ = FreePort();
  control_port_ = FreePort() / 2;  // at most 32767
  Start();
}

Target::~Target() {
  Kill();
  std::error_code ignored;
  if (!memory_.empty()) std::filesystem::remove_all(memory_, ignored);
  std::filesystem::remove(absl::StrCat("/var/run/tgtd/socket.", control_port_), ignored);
  std::filesystem::remove(absl::StrCat("/var/run/tgtd/socket.", control_port_, ".lock"), ignored);
}

std::string Target::FileOf(int number) const {
  return memory_.empty() ? dir_ / absl::StrCat("lun", number) : absl::StrCat(memory_, "/lun", number);
}

std::string Target::Admin(std::vector<std::string> arguments) const {
  std::vector<std::string> command = {"tgtadm", "-C", absl::StrCat(control_port_), "--lld", "iscsi"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return MustRun(command);
}

// Targets are restored before the portal opens, as an array does.
void Target::Start() {
  pid_ = Spawn({"tgtd", "-f", "-C", absl::StrCat(control_port_), "-t", "4", "--iscsi", "portal=127.0.0.1:0"},
               dir_ / "tgtd.log");
  Eventually("tgtd answers", [&] {
    return Run({"tgtadm", "-C", absl::StrCat(control_port_), "--op", "show", "--mode", "sys"}).exit_code == 0;
  });
  for (const auto& [number, size] : luns_) Define(number);
  Admin({"--op", "new", "--mode", "portal", "--param", absl::StrCat("portal=127.0.0.1:", port_)});
}

void Target::Kill() {
  KillAndWait(pid_);
  pid_ = -1;
}

void Target::AddLun(int number, uint64_t size_bytes) {
  const int file = ::open(FileOf(number).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(::ftruncate(file, static_cast<off_t>(size_bytes)) == 0);
  ::close(file);
  luns_.emplace_back(number, size_bytes);
  Define(number);
}

void Target::Define(int number) const {
  const std::string id = absl::StrCat(number);
  const std::string user = absl::StrCat("u", number);
  Admin({"--op", "new", "--mode", "target", "--tid", id, "-T", NameOf(port_, number)});
  Admin({"--op", "new", "--mode", "logicalunit", "--tid", id, "--lun", "1", "-b", FileOf(number)});
  Admin({"--op", "update", "--mode", "logicalunit", "--tid", id, "--lun", "1", "--params",
         absl::StrCat("vendor_id=LUNKEEPR,product_id=0123456789abcdef,scsi_sn=serial", number,
                      ",thin_provisioning=1")});
  Admin({"--op", "bind", "--mode", "target", "--tid", id, "-I", "ALL"});
  Run({"tgtadm", "-C", absl::StrCat(control_port_), "--lld", "iscsi", "--op", "new", "--mode", "account",
       "--user", user, "--password", kSecret});
  Admin({"--op", "bind", "--mode", "account", "--tid", id, "--user", user});
}

// As a fence does: closed to logins, then every connection ended, then deleted once nothing is in flight.
void Target::RemoveTarget(int number) {
  const std::string id = absl::StrCat(number);
  Admin({"--op", "unbind", "--mode", "target", "--tid", id, "-I", "ALL"});
  Eventually("the target is gone", [&] {
    int session = 0;
    std::istringstream connections(Admin({"--op", "show", "--mode", "conn", "--tid", id}));
    for (std::string word; connections >> word;) {
      if (word == "Session:") connections >> session;
      if (word != "Connection:") continue;
      connections >> word;
      Run({"tgtadm", "-C", absl::StrCat(control_port_), "--lld", "iscsi", "--op", "delete", "--mode", "conn",
           "--tid", id, "--sid", absl::StrCat(session), "--cid", word});
    }
    return Run({"tgtadm", "-C", absl::StrCat(control_port_), "--lld", "iscsi", "--op", "delete", "--mode",
                "target", "--tid", id})
               .exit_code == 0;
  });
  std::erase_if(luns_, [&](const auto& lun) { return lun.first == number; });
}

void Target::Grow(int number, uint64_t size_bytes) {
  REQUIRE(::truncate(FileOf(number).c_str(), static_cast<off_t>(size_bytes)) == 0);
  const auto update = [&](const std::string& what) {
    Admin({"--op", "update", "--mode", "logicalunit", "--tid", absl::StrCat(number), "--lun", "1", "--params",
           what});
  };
  update("online=0");
  update("path=" + FileOf(number));
  update("online=1");
}

AttachRequest Target::RequestFor(int number) const {
  AttachRequest request;
  request.volume = VolumeId(absl::StrCat("test:v", number));
  request.connection = {.portal = absl::StrCat("127.0.0.1:", port_),
                        .target = Iqn(NameOf(port_, number)),
                        .initiator = Iqn("iqn.2026-11.io.lunkeeper:node:test"),
                        .lun = 1,
                        .chap = {.user = absl::StrCat("u", number), .secret = kSecret}};
  request.serial = absl::StrCat("serial", number);
  for (const auto& [each, size] : luns_) {
    if (each == number) request.size_bytes = size;
  }
  return request;
}

Datapath::Datapath(const TempDir& dir, std::vector<std::string> options, std::vector<std::string> wrapper)
    : dir_(dir),
      socket_(dir / "datapath.sock"),
      options_(std::move(options)),
      wrapper_(std::move(wrapper)),
      initiator_(MakeUserInitiator(socket_, absl::Seconds(30))) {
  Start();
}

Datapath::~Datapath() {
  if (pid_ > 0 && std::uncaught_exceptions() > 0) UNSCOPED_INFO(log());
  Kill();
}

bool IsServed(const std::string& socket) { return ListServedDevices(socket, absl::Seconds(5)).ok(); }

void Datapath::Start() {
  std::vector<std::string> command = wrapper_;
  command.insert(command.end(), {LK_DATAPATH_BINARY, "datapath", "--socket=" + socket_});
  command.insert(command.end(), options_.begin(), options_.end());
  pid_ = Spawn(command, dir_ / "datapath.log");
  Eventually("the data path listens", [&] { return Ended() || (IsServed(socket_) && worker() != 0); });
}

void Datapath::Kill() {
  KillAndWait(pid_);
  pid_ = -1;
}

int Datapath::WaitForExit() {
  int status = 0;
  Eventually("the data path ends", [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool Datapath::Ended() {
  if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ < 0;
}

// The child that runs a program of its own; the others are forks that make one system call.
pid_t Datapath::worker() const {
  std::ifstream children(absl::StrCat("/proc/", pid_, "/task/", pid_, "/children"));
  pid_t child = 0;
  while (children >> child) {
    if (Slurp(absl::StrCat("/proc/", child, "/cmdline")).find("--worker-socket") != std::string::npos)
      return child;
  }
  return 0;
}

pid_t Datapath::WaitForOtherWorker(pid_t than) const {
  pid_t now = 0;
  Eventually("another worker", [&] { return (now = worker()) != 0 && now != than; });
  return now;
}

uint64_t Datapath::memory_kib() const {
  uint64_t pages = 0;
  for (const pid_t pid : {pid_, worker()}) {
    uint64_t size = 0, resident = 0;
    std::ifstream(absl::StrCat("/proc/", pid, "/statm")) >> size >> resident;
    pages += resident;
  }
  return pages * 4;
}

std::string Datapath::log() const { return Slurp(dir_ / "datapath.log"); }

Device MustAttach(Datapath& datapath, const AttachRequest& request) {
  auto device = datapath.initiator().Attach(request);
  INFO(device.status() << "\n" << datapath.log());
  REQUIRE(device.ok());
  return *device;
}

AttachedLun::AttachedLun(uint64_t size_bytes, std::vector<std::string> options)
    : target(dir), datapath(dir, std::move(options)) {
  target.AddLun(1, size_bytes);
  device = MustAttach(datapath, target.RequestFor(1));
}

Mounted::Mounted(const std::string& device, const std::string& directory, const std::string& type, bool make)
    : directory_(directory) {
  if (make) MustRun({type == "xfs" ? "mkfs.xfs" : "mkfs.ext4", "-q", device});
  std::filesystem::create_directories(directory);
  REQUIRE(::mount(device.c_str(), directory.c_str(), type.c_str(), 0, "") == 0);
}

Mounted::~Mounted() {
  if (mounted_) ::umount2(directory_.c_str(), MNT_DETACH);
}

void Mounted::Unmount() {
  REQUIRE(::umount(directory_.c_str()) == 0);
  mounted_ = false;
}

}  // namespace lunkeeper::testing
