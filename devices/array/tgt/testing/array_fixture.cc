#include "devices/array/tgt/testing/array_fixture.h"

#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/tgt_client.h"
#include "devices/array/tgt/tgtd_lock.h"

namespace lunkeeper::testing {

namespace {

// Ours is for this program alone, and has nobody else's.
bool MakeMountNamespace() {
  constexpr char kDropOthers[] =
      "awk 'index($5, \"/tmp/\") == 1 { print $5 }' /proc/self/mountinfo | tac |"
      " xargs --no-run-if-empty --max-args=1 umount --lazy 2>/dev/null";
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    throw std::runtime_error("cannot make a mount namespace");
  [[maybe_unused]] const int gone = std::system(kDropOthers);
  return true;
}

// A mount namespace that somebody makes has a copy of each mount. The file system then goes on there when it
// is unmounted here: another mount of it is no new one, and its device stays in use.
void HideMounts() { [[maybe_unused]] static const bool hidden = MakeMountNamespace(); }

}  // namespace

LoopMount::LoopMount(const std::string& directory, const std::string& size, const std::string& mkfs)
    : path_(directory + "/mounted"), image_(directory + "/image") {
  HideMounts();
  Run(absl::StrCat("truncate -s ", size, " ", image_, " && ", mkfs, " ", image_, " && mkdir ", path_,
                   " && mount -o loop ", image_, " ", path_));
}

void LoopMount::MountAnew() const {
  const std::string unmount = absl::StrCat("umount ", path_, " 2>/dev/null");
  if (!Eventually([&] { return std::system(unmount.c_str()) == 0; }))
    throw std::runtime_error("cannot " + unmount);
  Run(absl::StrCat("mount -o loop ", image_, " ", path_));
}

LoopMount::~LoopMount() {
  // tgtd may take a moment to let its files go.
  Eventually([this] { return std::system(("umount " + path_ + " 2>/dev/null").c_str()) == 0; });
}

void LoopMount::Fill() const {
  for (const char* block : {"1M", "4k", "512"}) {
    const std::string fill =
        absl::StrCat("dd if=/dev/zero bs=", block, " 2>/dev/null >>", path_, "/filler; sync -f ", path_);
    [[maybe_unused]] const int full = std::system(fill.c_str());
  }
}

VolumeSpec Spec(const std::string& name, uint64_t size_mib) {
  VolumeSpec spec;
  spec.name = name;
  spec.size_bytes = size_mib << 20;
  return spec;
}

void Run(const std::string& command) {
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

int FreeControlPort(int count) {
  static std::atomic<int> next{0};
  while (true) {
    const int port = 1000 + (::getpid() * 37 + next.fetch_add(count)) % 30000;
    int free = 0;
    while (free < count && !TgtClient(port + free).FindProcess().ok()) ++free;
    if (free == count) return port;
  }
}

namespace {

bool IsPortFree(int port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// The first of so many in a row.
int FreePorts(int count) {
  while (true) {
    const int port = FreePort();
    int free = 1;
    while (free < count && IsPortFree(port + free)) ++free;
    if (free == count) return port;
  }
}

}  // namespace

pid_t TgtdProcess(int control_port) { return TgtClient(control_port).FindProcess().value_or(0); }

ArrayFixture::ArrayFixture(const std::string& pool_dir, int tgtds) {
  options.name = "a1";
  options.pool_dir = pool_dir.empty() ? directory.path() + "/pool" : pool_dir;
  options.portals = {absl::StrCat("127.0.0.1:", FreePorts(tgtds))};
  options.control_port = FreeControlPort(tgtds);
  options.tgtds = tgtds;
  options.seen_sequence_path = directory.path() + "/seen";
  options.mount_path = directory.path() + "/mount";
  options.tgtd_output_path = directory.path() + "/tgtd";
  options.drain_timeout = absl::Seconds(20);
}

ArrayFixture::~ArrayFixture() {
  array.reset();
  const pid_t pid = TgtdProcess(options.control_port);
  if (pid > 0) ::kill(pid, SIGKILL);
  Eventually([this] { return TgtdProcess(options.control_port) == 0; });
  ::unlink(absl::StrCat("/var/run/tgtd/socket.", options.control_port).c_str());
  ::unlink(absl::StrCat("/var/run/tgtd/socket.", options.control_port, ".lock").c_str());
  // The further ones by their locks: the control port may be another test's.
  for (int number = 1; number < kMostTgtds; ++number) {
    if (::access(TgtdLockPath(options.pool_dir, number).c_str(), F_OK) != 0) continue;
    const TgtdLock lock(TgtdLockPath(options.pool_dir, number));
    const pid_t further = lock.FindHolder();
    if (further == 0) continue;
    const std::string port = ReadControlPort(further);
    ::kill(further, SIGKILL);
    Eventually([&] { return lock.FindHolder() == 0; });
    ::unlink(absl::StrCat("/var/run/tgtd/socket.", port).c_str());
    ::unlink(absl::StrCat("/var/run/tgtd/socket.", port, ".lock").c_str());
  }
}

absl::Status ArrayFixture::Open() {
  array.reset();
  auto opened = OpenTgtArray(options);
  RETURN_IF_ERROR(opened.status());
  array = *std::move(opened);
  return absl::OkStatus();
}

ClusterFixture::ClusterFixture() {
  if (const absl::Status opened = Open(); !opened.ok()) throw std::runtime_error(opened.ToString());
  array = Cluster();
}

VolumeId ClusterFixture::Make(const std::string& name) {
  return array->volumes().CreateVolume(Spec(name, 16)).value().id;
}

absl::StatusOr<Grant> ClusterFixture::Acquire(const VolumeId& volume, const NodeId& node, absl::Duration wait,
                                              Access access) {
  return array->grants().AcquireGrant(
      {.volume = volume, .node = node, .access = access, .owner = GrantOwner::kNode}, wait);
}

absl::Status ClusterFixture::Release(const VolumeId& volume, const NodeId& node) {
  return array->grants().ReleaseGrant(volume, node, GrantOwner::kNode, kAnyGeneration);
}

absl::StatusOr<std::unique_ptr<PlainInitiator>> PlainInitiator::Login(const Connection& connection) {
  auto session = LibiscsiSession::Login(connection, absl::Seconds(15));
  if (!session.ok()) return session.status();
  return std::unique_ptr<PlainInitiator>(new PlainInitiator(*std::move(session)));
}

absl::Status PlainInitiator::TryWrite(uint64_t block, char fill) {
  return session_->WriteBlocks(block, std::string(512, fill));
}

std::optional<char> PlainInitiator::Read(uint64_t block) {
  std::string data(512, '\0');
  if (!session_->ReadBlocks(block, data).ok()) return std::nullopt;
  return data[0];
}

uint64_t PlainInitiator::SizeBytes() {
  const auto capacity = session_->ReadCapacity();
  return capacity.ok() ? capacity->blocks * capacity->block_bytes : 0;
}

LunIdentity PlainInitiator::Identity() { return session_->ReadIdentity().value_or(LunIdentity()); }

}  // namespace lunkeeper::testing
