#include "devices/initiator/user/loop_device.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "devices/initiator/user/isolated.h"
#include "plugin/base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr int kLoopMajor = 7;
// Each lost race for a free device was won by somebody else, so that there are as many at most as devices
// being made.
constexpr int kRaces = 1000;
constexpr int kLooks = 20;  // at a device that somebody has open
constexpr useconds_t kPause = 50'000;

uint64_t Hash(const std::string& text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

void Fail(IsolatedResult* result, const char* step) {
  result->error = errno;
  std::snprintf(result->step, sizeof(result->step), "%s", step);
}

absl::Status StatusOf(const IsolatedResult& result) {
  return result.error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(result.error, result.step);
}

// In the child. Where /dev is no devtmpfs, the node is made here.
int OpenLoop(int number) {
  char path[32];
  std::snprintf(path, sizeof(path), "/dev/loop%d", number);
  int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT && ::mknod(path, S_IFBLK | 0660, makedev(kLoopMajor, number)) == 0) {
    fd = ::open(path, O_RDWR | O_CLOEXEC);
  }
  return fd;
}

// In the child. Others look for a free loop device too: a lost race is run again.
void Configure(int root, loop_config config, IsolatedResult* result) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", root);
  const bool read_only = (config.info.lo_flags & LO_FLAGS_READ_ONLY) != 0;
  const int file = ::open(path, (read_only ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC);
  if (file < 0) return Fail(result, "opening the volume's FUSE file");
  config.fd = static_cast<uint32_t>(file);
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) return Fail(result, "opening /dev/loop-control");
  for (int attempt = 0; attempt < kRaces; ++attempt) {
    result->number = ::ioctl(control, LOOP_CTL_GET_FREE);
    if (result->number < 0) return Fail(result, "finding a free loop device");
    const int loop = OpenLoop(result->number);
    if (loop < 0) return Fail(result, "opening a loop device");
    if (::ioctl(loop, LOOP_CONFIGURE, &config) == 0) {
      result->fd = loop;
      return;
    }
    if (errno != EBUSY) return Fail(result, "setting up a loop device");
    ::close(loop);
  }
  errno = EBUSY;
  Fail(result, "setting up a loop device");
}

// In the child. Clearing a device that others have open only marks it as to be cleared at the last close,
// which ours are from the start; if nobody has, it stops being a bound device at once. So this asks and
// closes in one step. A prober (udev) may have it open for a moment.
void Seal(int loop, bool flush, IsolatedResult* result) {
  if (flush && ::fsync(loop) != 0 && errno != EIO)
    return Fail(result, "writing back the block device's cache");
  for (int attempt = 0; attempt < kLooks; ++attempt) {
    if (attempt > 0) ::usleep(kPause);
    loop_info64 info;
    if (::ioctl(loop, LOOP_CLR_FD) != 0 && errno == ENXIO) return;
    if (::ioctl(loop, LOOP_GET_STATUS64, &info) != 0 && errno == ENXIO) return;
  }
  errno = EBUSY;
  Fail(result, "closing the block device");
}

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string LoopTagPrefix(const std::string& socket_path) {
  const std::filesystem::path path(socket_path);
  const std::string directory = path.parent_path().empty() ? "." : path.parent_path().string();
  struct stat status = {};
  ::stat(directory.c_str(), &status);
  const std::string identity = absl::StrCat(status.st_dev, ":", status.st_ino, ":", path.filename().string());
  return absl::StrFormat("lk%08x/", static_cast<uint32_t>(Hash(identity)));
}

std::string LoopTag(const std::string& prefix, const std::string& volume) {
  if (prefix.size() + volume.size() < LO_NAME_SIZE) return prefix + volume;
  return absl::StrFormat("%s#%016x", prefix, Hash(volume));
}

absl::StatusOr<LoopDevice> MakeLoop(int fuse_root, const LoopOptions& options, absl::Time deadline) {
  loop_config config = {};
  config.block_size = options.block_size;
  config.info.lo_flags =
      LO_FLAGS_DIRECT_IO | LO_FLAGS_AUTOCLEAR | (options.read_only ? LO_FLAGS_READ_ONLY : 0);
  std::strncpy(reinterpret_cast<char*>(config.info.lo_file_name), options.tag.c_str(), LO_NAME_SIZE - 1);
  LoopDevice loop;
  ASSIGN_OR_RETURN(
      const IsolatedResult result,
      RunIsolated(
          UniqueFd(), fuse_root, deadline,
          [&](int, int root, IsolatedResult* made) { Configure(root, config, made); }, &loop.fd));
  if (result.error == EBUSY || result.error == ENOSPC) {
    return absl::ResourceExhaustedError("no free loop device");
  }
  RETURN_IF_ERROR(StatusOf(result));
  loop.number = result.number;
  return loop;
}

absl::Status GrowLoop(const LoopDevice& loop, int fuse_root, absl::Time deadline) {
  ASSIGN_OR_RETURN(
      const IsolatedResult result,
      RunIsolated(UniqueFd(::dup(loop.fd.get())), fuse_root, deadline,
                  [](int device, int root, IsolatedResult* done) {
                    struct stat status;  // kernels before 6.16 take the size that was asked for last
                    if (::fstat(root, &status) != 0) return Fail(done, "reading the volume's size");
                    if (::ioctl(device, LOOP_SET_CAPACITY) != 0) Fail(done, "growing the block device");
                  }));
  return StatusOf(result);
}

absl::Status SealLoop(const LoopDevice& loop, bool flush, absl::Time deadline) {
  ASSIGN_OR_RETURN(const IsolatedResult result,
                   RunIsolated(UniqueFd(::dup(loop.fd.get())), -1, deadline,
                               [&](int device, int, IsolatedResult* done) { Seal(device, flush, done); }));
  if (result.error == EBUSY) {
    return absl::FailedPreconditionError(absl::StrCat(
        loop.path(), " is still open (mounted, or held by a process): unmount or close it first"));
  }
  return StatusOf(result);
}

absl::Status RemoveLoop(LoopDevice loop, absl::Time deadline) {
  return RunIsolated(std::move(loop.fd), -1, deadline,
                     [](int device, int, IsolatedResult*) { ::close(device); })
      .status();
}

std::vector<FoundLoop> FindLoops(const std::string& prefix) {
  std::vector<FoundLoop> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/block", ignored)) {
    const std::string name = entry.path().filename();
    // Ours have the root of a detached mount behind them; others are left alone.
    if (name.rfind("loop", 0) != 0 || ReadLine(entry.path() / "loop/backing_file") != "/") continue;
    const UniqueFd device(::open(absl::StrCat("/dev/", name).c_str(), O_RDONLY | O_CLOEXEC));
    loop_info64 info = {};
    if (!device || ::ioctl(device.get(), LOOP_GET_STATUS64, &info) != 0) continue;
    const std::string tag(reinterpret_cast<const char*>(info.lo_file_name),
                          ::strnlen(reinterpret_cast<const char*>(info.lo_file_name), LO_NAME_SIZE));
    if (tag.compare(0, prefix.size(), prefix) != 0) continue;
    uint64_t size = 0;
    ::ioctl(device.get(), BLKGETSIZE64, &size);
    found.push_back({.number = static_cast<int>(info.lo_number),
                     .name = tag.substr(prefix.size()),
                     .size_bytes = size,
                     .read_only = (info.lo_flags & LO_FLAGS_READ_ONLY) != 0});
  }
  return found;
}

}  // namespace lunkeeper
