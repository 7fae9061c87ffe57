// The kernel's interface: drivers/block/loop.c and uapi/linux/loop.h.
//
// A loop device reads and writes its file through the kernel, and ours is a file of the very FUSE mount that
// this program serves. So an ioctl that waits for I/O of the device, or for the lock that another one holds
// while it waits, may wait for the worker, and the supervisor must not. All of these run in a child
// (base/child.h) which sends a LoopReport back, and the new device's descriptor with it.
//
// LO_FLAGS_AUTOCLEAR from the start: the kernel removes the device at its last close, so that a supervisor
// that is killed at any line leaves nothing that has to be cleaned up, except free numbers (SweepLoops).

#include "devices/datapath/loop_device.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/child.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "devices/datapath/loop_tag.h"

namespace lunkeeper {
namespace {

constexpr int kLoopMajor = 7;
// Ours are numbered from here; what others ask for without a number is far below.
constexpr int kFirstNumber = 4096;
constexpr int kMinors = 1 << 20;  // MINORBITS of the kernel
constexpr int kDraws = 1000;      // a number that is taken is drawn again
constexpr absl::Duration kSweepTimeout = absl::Seconds(2);
// A device that somebody has open is tried again for a second: udev and blkid open each new device for a
// moment.
constexpr int kAttempts = 20;
constexpr absl::Duration kPause = absl::Milliseconds(50);

// What a child found out, from errno. Plain data: it goes through a socket.
struct LoopReport {
  int error = 0;       // errno of the step that failed
  char step[48] = {};  // which one
  int number = -1;     // of a new device
  int fd = -1;         // of a new device, in the child
};

void SetFailure(LoopReport* report, const char* step) {
  report->error = errno;
  std::snprintf(report->step, sizeof(report->step), "%s", step);
}

absl::Status StatusOf(const LoopReport& report) {
  return report.error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(report.error, report.step);
}

std::string GrowingSubject(const LoopDevice& loop) { return absl::StrCat("growing ", loop.path()); }
std::string ClosingSubject(const LoopDevice& loop) { return absl::StrCat("closing ", loop.path()); }

// Has `work` done in a child. Repeats are not refused: a seal without a flush is what ends the waiting of the
// seal with a flush that was given up before it.
absl::StatusOr<LoopReport> ReportFromChild(ChildCall call, const std::function<void(LoopReport*)>& work,
                                           UniqueFd* device = nullptr) {
  call.refuse_repeats = false;
  const std::string subject = call.subject;
  ASSIGN_OR_RETURN(ChildAnswer answer, CallInChild(std::move(call), [&work](int out) {
                     LoopReport report;
                     work(&report);
                     return SendWithDescriptor(out, &report, sizeof(report), report.fd);
                   }));
  LoopReport report;
  if (answer.output.size() != sizeof(report))
    return absl::InternalError(absl::StrCat(subject, ": no answer"));
  std::memcpy(&report, answer.output.data(), sizeof(report));
  if (device != nullptr) *device = std::move(answer.passed);
  return report;
}

// How many numbers there are: fewer where loop devices may have partitions.
int NumberLimit() {
  std::ifstream file("/sys/module/loop/parameters/max_part");
  unsigned max_part = 0;
  file >> max_part;
  return std::max(kMinors >> std::bit_width(max_part), 2 * kFirstNumber);
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

// In the child: a new device with a number drawn at random, open, or -1. A number that was in use lately must
// not come again soon: a path or a bind mount that outlived its device (its supervisor died) would lead to
// another volume.
int AddLoop(int control, int number_limit, int* number) {
  for (int draw = 0; draw < kDraws; ++draw) {
    *number =
        kFirstNumber + static_cast<int>(RandomBits() % static_cast<uint64_t>(number_limit - kFirstNumber));
    if (::ioctl(control, LOOP_CTL_ADD, *number) < 0) {
      if (errno == EEXIST) continue;
      return -1;
    }
    const int loop = OpenLoop(*number);
    if (loop >= 0) return loop;
    if (errno != ENXIO && errno != ENOENT) return -1;  // those two: swept away before it was opened
  }
  errno = EBUSY;
  return -1;
}

// The mount's root is no descriptor to read, write or change by (O_PATH), but leads to the file.
struct FdPath {
  char text[32];
};
FdPath PathOf(int fd) {
  FdPath path;
  std::snprintf(path.text, sizeof(path.text), "/proc/self/fd/%d", fd);
  return path;
}

// In the child. Others may take any free device for theirs: then another one is made.
void ConfigureLoop(int root, int number_limit, loop_config config, LoopReport* report) {
  const bool read_only = (config.info.lo_flags & LO_FLAGS_READ_ONLY) != 0;
  const int file = ::open(PathOf(root).text, (read_only ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC);
  if (file < 0) return SetFailure(report, "opening the volume's FUSE file");
  // Asks the worker for the file's size. Only newer kernels' loop devices ask for it themselves. Older ones
  // (Debian 12's 6.1) take the size that is cached. None is yet, and such a device has no room at all.
  struct stat size = {};
  if (::fstat(file, &size) != 0) return SetFailure(report, "asking for the volume's size");
  config.fd = static_cast<uint32_t>(file);
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) return SetFailure(report, "opening /dev/loop-control");
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int loop = AddLoop(control, number_limit, &report->number);
    if (loop < 0) return SetFailure(report, "making a loop device");
    if (::ioctl(loop, LOOP_CONFIGURE, &config) == 0) {
      report->fd = loop;
      return;
    }
    const int error = errno;
    ::close(loop);
    if (error == EBUSY) continue;
    ::ioctl(control, LOOP_CTL_REMOVE, report->number);
    errno = error;
    return SetFailure(report, "setting up a loop device");
  }
  errno = EBUSY;
  SetFailure(report, "setting up a loop device");
}

// In the child. The kernel throws away what a GETATTR answered when I/O of the file ended meanwhile, and
// reads past the old end then fail; it keeps what a SETATTR answers, whatever is set.
void TakeSizeAnew(int root, LoopReport* report) {
  if (::utimensat(AT_FDCWD, PathOf(root).text, nullptr, 0) != 0)
    SetFailure(report, "taking the volume's new size");
}

// In the child, of a device that nobody has open any more, but perhaps somebody who looks at all of them.
void RemoveNumber(int number) {
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) absl::SleepFor(kPause);
    if (::ioctl(control, LOOP_CTL_REMOVE, number) == 0 || errno != EBUSY) break;
  }
  char path[32];
  std::snprintf(path, sizeof(path), "/dev/loop%d", number);
  ::unlink(path);  // where /dev is a devtmpfs, it has gone already
}

// In the child. The kernel reports an error of a write-back once to each open file (errseq_t), and the report
// is lost with a child that is given up. So it asks by an open file of its own.
void WriteBackByOwnFile(int loop, LoopReport* report) {
  const int own = ::open(PathOf(loop).text, O_RDONLY | O_CLOEXEC);
  if (own < 0 && errno == ENXIO) return;  // it has been closed already
  if (own < 0 || ::fsync(own) != 0) SetFailure(report, "writing back the block device's cache");
  ::close(own);  // else it would be in use
}

absl::Status WriteBackFailed(const LoopDevice& loop) {
  return absl::DataLossError(absl::StrCat(
      loop.path(), ": writing back what it caches failed: what was written and not synced is lost"));
}

// What the kernel reports to the supervisor's open file, once. So far behind the end there is no page to wait
// for.
absl::Status TakeWriteError(const LoopDevice& loop) {
  if (::sync_file_range(loop.fd.get(), off64_t{1} << 62, 1, SYNC_FILE_RANGE_WAIT_BEFORE) == 0)
    return absl::OkStatus();
  if (errno != ENOSYS && errno != EPERM) return WriteBackFailed(loop);  // not a sandbox
  return absl::ErrnoToStatus(errno, absl::StrCat(loop.path(), ": asking for errors of its cache"));
}

// In the child, asks and closes in one step: a device that others have open is only marked as to be cleared
// at the last close, which ours are from the start; else it stops being a bound device at once.
void ClearIfUnused(int loop, LoopReport* report) {
  loop_info64 info;
  if (::ioctl(loop, LOOP_CLR_FD) != 0 && errno == ENXIO) return;
  if (::ioctl(loop, LOOP_GET_STATUS64, &info) != 0 && errno == ENXIO) return;
  report->error = EBUSY;
}

// A step of the closing, with a copy of the device's descriptor.
absl::StatusOr<LoopReport> CloseInChild(const LoopDevice& loop, absl::Time deadline,
                                        void (*step)(int loop, LoopReport*)) {
  ChildCall call = {.subject = ClosingSubject(loop), .deadline = deadline};
  call.given.Reset(::dup(loop.fd.get()));
  const int device = call.given.get();
  return ReportFromChild(std::move(call), [step, device](LoopReport* report) { step(device, report); });
}

// The numbers of the loop devices of which `wanted` likes the folder in sysfs.
std::vector<int> ListNumbers(const std::function<bool(const std::filesystem::path&)>& wanted) {
  std::vector<int> numbers;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/block", ignored)) {
    const std::string name = entry.path().filename();
    int number = -1;
    if (name.rfind("loop", 0) != 0) continue;
    std::from_chars(name.data() + 4, name.data() + name.size(), number);
    if (number >= kFirstNumber && wanted(entry.path())) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

absl::StatusOr<LoopDevice> MakeLoop(int fuse_root, const LoopOptions& options, absl::Time deadline) {
  loop_config config = {};
  config.block_size = options.block_size;
  config.info.lo_flags =
      LO_FLAGS_DIRECT_IO | LO_FLAGS_AUTOCLEAR | (options.read_only ? LO_FLAGS_READ_ONLY : 0);
  config.info.lo_sizelimit = LoopMark(options.tag);
  std::strncpy(reinterpret_cast<char*>(config.info.lo_file_name), options.tag.c_str(), LO_NAME_SIZE - 1);
  const int number_limit = NumberLimit();
  LoopDevice loop;
  ChildCall call = {.subject = absl::StrCat("making the block device of ", options.tag),
                    .deadline = deadline,
                    .lent = fuse_root};
  const auto make = [&](LoopReport* report) { ConfigureLoop(fuse_root, number_limit, config, report); };
  ASSIGN_OR_RETURN(const LoopReport report, ReportFromChild(std::move(call), make, &loop.fd));
  if (report.error == EBUSY || report.error == ENOSPC) {
    return absl::ResourceExhaustedError("no free loop device");
  }
  RETURN_IF_ERROR(StatusOf(report));
  loop.number = report.number;
  return loop;
}

absl::Status GrowLoop(const LoopDevice& loop, int fuse_root, absl::Time deadline) {
  ChildCall call = {.subject = GrowingSubject(loop), .deadline = deadline, .lent = fuse_root};
  call.given.Reset(::dup(loop.fd.get()));
  const int device = call.given.get();
  const auto grow = [device, fuse_root](LoopReport* report) {
    TakeSizeAnew(fuse_root, report);
    if (report->error != 0) return;
    if (::ioctl(device, LOOP_SET_CAPACITY) != 0) SetFailure(report, "growing the block device");
  };
  ASSIGN_OR_RETURN(const LoopReport report, ReportFromChild(std::move(call), grow));
  return StatusOf(report);
}

absl::Status WriteBackLoop(const LoopDevice& loop, absl::Time deadline) {
  ASSIGN_OR_RETURN(const LoopReport report, CloseInChild(loop, deadline, WriteBackByOwnFile));
  RETURN_IF_ERROR(TakeWriteError(loop));  // also of children that were given up before
  return report.error == EIO ? WriteBackFailed(loop) : StatusOf(report);
}

absl::Status SealLoop(const LoopDevice& loop, absl::FunctionRef<absl::Status()> prepare,
                      absl::Time deadline) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) absl::SleepFor(kPause);
    RETURN_IF_ERROR(prepare());
    ASSIGN_OR_RETURN(const LoopReport report, CloseInChild(loop, deadline, ClearIfUnused));
    if (report.error != EBUSY) return StatusOf(report);
  }
  return absl::FailedPreconditionError(
      absl::StrCat(loop.path(), " is still open (mounted, or held by a process): unmount or close it first"));
}

// The subject has the number of the device, and no other device has that.
bool HasWaitingChild(const LoopDevice& loop) {
  return IsLeftBehind(GrowingSubject(loop)) || IsLeftBehind(ClosingSubject(loop));
}

std::optional<uint64_t> CountCachedBytes(const LoopDevice& loop) {
  // uapi/linux/mman.h; the number is the same on all architectures that we build for.
  constexpr long kCachestat = 451;
  struct Range {
    uint64_t offset = 0, length = 0;  // to the end
  } range;
  struct Pages {
    uint64_t cached = 0, dirty = 0, under_writeback = 0, evicted = 0, recently_evicted = 0;
  } pages;
  if (::syscall(kCachestat, loop.fd.get(), &range, &pages, 0) != 0) return std::nullopt;
  return (pages.dirty + pages.under_writeback) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

absl::Status RemoveLoop(LoopDevice loop, absl::Time deadline) {
  const int number = loop.number;
  ChildCall call = {
      .subject = absl::StrCat("removing ", loop.path()), .deadline = deadline, .given = std::move(loop.fd)};
  const int device = call.given.get();
  const auto remove = [device, number](LoopReport*) {
    ::close(device);  // the last descriptor: the kernel clears the device now
    RemoveNumber(number);
  };
  return ReportFromChild(std::move(call), remove).status();
}

// In a child: the removal of a number waits while another process sets that very device up, and that may be
// a neighbour whose FUSE requests nobody answers.
void SweepLoops() {
  const std::vector<int> free_numbers = ListNumbers([](const std::filesystem::path& folder) {
    std::error_code ignored;
    return !std::filesystem::exists(folder / "loop", ignored);
  });
  const auto sweep = [&free_numbers](int) {
    const UniqueFd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    // Refused if somebody has it open.
    for (const int number : free_numbers) ::ioctl(control.get(), LOOP_CTL_REMOVE, number);
    return 0;
  };
  ChildCall call = {.subject = "removing free loop devices", .deadline = absl::Now() + kSweepTimeout};
  CallInChild(std::move(call), sweep).IgnoreError();  // for tidiness only
}

// Others' devices are not even opened: one that hangs in the kernel would hang this process, too. Orphans do
// not, since their FUSE connections ended with the supervisor.
std::vector<FoundLoop> FindLoops(const std::string& prefix, const std::function<bool(int number)>& skip) {
  const uint64_t mark = LoopMark(prefix);
  std::vector<FoundLoop> found;
  for (const int loop_number :
       ListNumbers([&](const std::filesystem::path& folder) { return ReadLoopMark(folder) == mark; })) {
    if (skip(loop_number)) continue;
    const UniqueFd device(::open(absl::StrCat("/dev/loop", loop_number).c_str(), O_RDONLY | O_CLOEXEC));
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
