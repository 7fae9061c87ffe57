#include "devices/array/testing/array_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/array/tgt_client.h"
#include "plugin/base/unique_fd.h"

namespace lunkeeper::testing {

TemporaryDirectory::TemporaryDirectory() {
  char name[] = "/tmp/lunkeeper-array-XXXXXX";
  if (::mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

XfsPool::XfsPool(const std::string& directory, const std::string& size) : path_(directory + "/xfs") {
  Run(absl::StrCat("truncate -s ", size, " ", directory, "/xfs.image && mkfs.xfs -q -m reflink=1 ", directory,
                   "/xfs.image && mkdir ", path_, " && mount -o loop ", directory, "/xfs.image ", path_));
}

XfsPool::~XfsPool() {
  // tgtd may take a moment to let its files go.
  Eventually([this] { return std::system(("umount " + path_ + " 2>/dev/null").c_str()) == 0; });
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

int FreePort() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) throw std::runtime_error("bind");
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

int FreeControlPort() {
  static std::atomic<int> next{0};
  while (true) {
    const int port = 1000 + (::getpid() * 37 + next++) % 30000;
    if (!TgtClient(port).Process().ok()) return port;
  }
}

pid_t TgtdProcess(int control_port) { return TgtClient(control_port).Process().value_or(0); }

bool Eventually(const std::function<bool()>& condition, absl::Duration within) {
  const absl::Time deadline = absl::Now() + within;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

ArrayFixture::ArrayFixture(const std::string& pool_dir) {
  options.name = "a1";
  options.pool_dir = pool_dir.empty() ? directory.path() + "/pool" : pool_dir;
  options.portal = absl::StrCat("127.0.0.1:", FreePort());
  options.control_port = FreeControlPort();
  options.seen_sequence_path = directory.path() + "/seen";
  options.tgtd_log_path = directory.path() + "/tgtd.log";
  options.drain_timeout = absl::Seconds(20);
}

ArrayFixture::~ArrayFixture() {
  host.reset();
  const pid_t pid = TgtdProcess(options.control_port);
  if (pid > 0) ::kill(pid, SIGKILL);
  Eventually([this] { return TgtdProcess(options.control_port) == 0; });
  ::unlink(absl::StrCat("/var/run/tgtd/socket.", options.control_port).c_str());
  ::unlink(absl::StrCat("/var/run/tgtd/socket.", options.control_port, ".lock").c_str());
}

absl::Status ArrayFixture::Open() {
  host.reset();
  auto opened = OpenTgtArray(options);
  if (opened.ok()) host = *std::move(opened);
  return opened.status();
}

absl::StatusOr<std::unique_ptr<PlainInitiator>> PlainInitiator::Login(const Connection& connection) {
  ::signal(SIGPIPE, SIG_IGN);  // libiscsi writes to sockets that the target has closed
  std::unique_ptr<PlainInitiator> made(
      new PlainInitiator(iscsi_create_context(connection.initiator.value().c_str())));
  iscsi_context* context = made->context_;
  iscsi_set_noautoreconnect(context, 1);
  iscsi_set_timeout(context, 15);
  iscsi_set_targetname(context, connection.target.value().c_str());
  iscsi_set_session_type(context, ISCSI_SESSION_NORMAL);
  if (!connection.chap.user.empty()) {
    iscsi_set_initiator_username_pwd(context, connection.chap.user.c_str(), connection.chap.secret.c_str());
  }
  if (iscsi_connect_sync(context, connection.portal.c_str()) != 0) {
    return absl::UnavailableError(iscsi_get_error(context));
  }
  if (iscsi_login_sync(context) != 0) return absl::PermissionDeniedError(iscsi_get_error(context));
  for (int i = 0; i < 5; ++i) {  // a new session's unit attentions
    scsi_task* task = iscsi_testunitready_sync(context, 1);
    const bool good = task != nullptr && task->status == SCSI_STATUS_GOOD;
    if (task != nullptr) scsi_free_scsi_task(task);
    if (good) return made;
  }
  return absl::InternalError(iscsi_get_error(context));
}

PlainInitiator::~PlainInitiator() { iscsi_destroy_context(context_); }

bool PlainInitiator::Write(uint64_t block, char fill) {
  unsigned char data[512];
  std::memset(data, fill, sizeof(data));
  scsi_task* task = iscsi_write16_sync(context_, 1, block, data, sizeof(data), 512, 0, 0, 0, 0, 0);
  const bool good = task != nullptr && task->status == SCSI_STATUS_GOOD;
  if (task != nullptr) scsi_free_scsi_task(task);
  return good;
}

std::optional<char> PlainInitiator::Read(uint64_t block) {
  scsi_task* task = iscsi_read16_sync(context_, 1, block, 512, 512, 0, 0, 0, 0, 0);
  std::optional<char> first;
  if (task != nullptr && task->status == SCSI_STATUS_GOOD) first = static_cast<char>(task->datain.data[0]);
  if (task != nullptr) scsi_free_scsi_task(task);
  return first;
}

uint64_t PlainInitiator::SizeBytes() {
  scsi_task* task = iscsi_readcapacity16_sync(context_, 1);
  uint64_t size = 0;
  if (task != nullptr && task->status == SCSI_STATUS_GOOD) {
    const auto* capacity = static_cast<const scsi_readcapacity16*>(scsi_datain_unmarshall(task));
    size = (capacity->returned_lba + 1) * capacity->block_length;
  }
  if (task != nullptr) scsi_free_scsi_task(task);
  return size;
}

std::string PlainInitiator::Inquiry(int page) {
  scsi_task* task = iscsi_inquiry_sync(context_, 1, page >= 0 ? 1 : 0, page >= 0 ? page : 0, 255);
  std::string text;
  if (task != nullptr && task->status == SCSI_STATUS_GOOD) {
    const auto* data = reinterpret_cast<const char*>(task->datain.data);
    text = page >= 0 ? std::string(data + 4, task->datain.size - 4) : std::string(data + 8, 24);
    text = text.substr(0, text.find('\0'));
  }
  if (task != nullptr) scsi_free_scsi_task(task);
  return text;
}

}  // namespace lunkeeper::testing
