// flock belongs to the open file description, which fork and exec pass on. So the agent takes the lock, lets
// tgtd inherit the descriptor and closes its own. /proc/locks names who took the lock, which is an agent that
// may be long gone; who holds it now is found by the descriptors of the processes.
#include "devices/array/tgt/tgtd_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "devices/array/tgt/tgtd_sockets.h"

namespace lunkeeper {
namespace {

std::vector<pid_t> ListProcesses() {
  std::vector<pid_t> processes;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(at->path().filename().string(), &pid)) processes.push_back(pid);
  }
  return processes;
}

// Whether a process has a flock by this descriptor. One that it inherited counts: the kernel lists a lock
// with every descriptor of the open file that it was taken by.
bool HoldsFlock(pid_t process, const std::string& descriptor) {
  std::ifstream info(absl::StrCat("/proc/", process, "/fdinfo/", descriptor));
  for (std::string line; std::getline(info, line);) {
    if (absl::StartsWith(line, "lock:") && absl::StrContains(line, " FLOCK ") &&
        absl::StrContains(line, " WRITE ")) {
      return true;
    }
  }
  return false;
}

// Which tgtd of its pool has this lock.
int NumberOf(const std::string& path) {
  int number = 0;
  absl::string_view name(path);
  name = name.substr(name.rfind('/') + 1);
  if (absl::ConsumePrefix(&name, "tgtd-") && absl::ConsumeSuffix(&name, ".lock")) [[maybe_unused]]
    const bool has_one = absl::SimpleAtoi(name, &number);
  return number;
}

}  // namespace

// Without a number for the first, which is older than the others.
std::string TgtdLockPath(const std::string& pool, int number) {
  return number == 0 ? pool + "/tgtd.lock" : absl::StrCat(pool, "/tgtd-", number, ".lock");
}

absl::Status CheckLocksAreThere(const std::string& pool) {
  // Links have the path without symbolic links. A name is all that is left of a removed file's place.
  std::error_code no_path;
  const std::string path = std::filesystem::canonical(pool, no_path).string();
  const std::string start = (no_path ? pool : path) + "/tgtd", end = ".lock (deleted)";
  for (const pid_t process : ListProcesses()) {
    std::error_code error;
    for (std::filesystem::directory_iterator at(absl::StrCat("/proc/", process, "/fd"), error), last;
         !error && at != last; at.increment(error)) {
      std::error_code closed_meanwhile;
      const std::string file = std::filesystem::read_symlink(at->path(), closed_meanwhile).string();
      if (!absl::StartsWith(file, start) || !absl::EndsWith(file, end)) continue;
      if (!HoldsFlock(process, at->path().filename().string())) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "process ", process, " is a tgtd that serves this pool, or files that it no longer has: ", file,
          "; end it with `kill -9 ", process, "`, which ends its sessions"));
    }
  }
  return absl::OkStatus();
}

std::string ReadControlPort(pid_t tgtd) {
  std::ifstream file(absl::StrCat("/proc/", tgtd, "/cmdline"));
  std::string word, before;
  for (; std::getline(file, word, '\0'); before = word) {
    if (before == "-C") return word;
  }
  return "";
}

absl::StatusOr<UniqueFd> TgtdLock::TakeLock() const {
  UniqueFd fd = OpenFile();
  if (!fd) return absl::UnavailableError(absl::StrCat("open ", path_, ": ", std::strerror(errno)));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK) return DescribeHolder();
  return absl::UnavailableError(absl::StrCat("lock ", path_, ": ", std::strerror(errno)));
}

UniqueFd TgtdLock::TryLock() const {
  UniqueFd fd = OpenFile();
  return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 ? std::move(fd) : UniqueFd();
}

UniqueFd TgtdLock::ShareLock(pid_t process, const UniqueFd& handle) const {
  int descriptor = -1;
  if (!absl::SimpleAtoi(FindDescriptor(process), &descriptor)) return {};
  return DuplicateDescriptor(handle, descriptor);
}

UniqueFd TgtdLock::OpenFile() const {
  return UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

absl::Status TgtdLock::CheckHolder(pid_t tgtd, int control_port) const {
  if (HoldsLock(tgtd)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("take over tgtd, process ", tgtd, ": it answers on control port ", control_port,
                   " but does not hold ", path_,
                   ", so it serves another pool, or files that this pool no longer has; choose another "
                   "--tgt-control-port, or end it with `kill -9 ",
                   tgtd, "`, which ends its sessions"));
}

// Links are compared by name before anything is opened or measured: another process's files may be on a file
// system that answers nobody. The rest of the path depends on mounts and on containers. A process that merely
// has the file open, such as a backup, holds nothing, and no message may name it as a tgtd.
std::string TgtdLock::FindDescriptor(pid_t process) const {
  struct stat ours {};
  if (::stat(path_.c_str(), &ours) != 0) return "";
  const std::string name = "/" + std::filesystem::path(path_).filename().string();
  std::error_code error;
  for (std::filesystem::directory_iterator at(absl::StrCat("/proc/", process, "/fd"), error), end;
       !error && at != end; at.increment(error)) {
    std::error_code closed_meanwhile;
    if (!absl::EndsWith(std::filesystem::read_symlink(at->path(), closed_meanwhile).string(), name)) continue;
    struct stat theirs {};
    if (::stat(at->path().c_str(), &theirs) != 0) continue;
    if (theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino) continue;
    std::string descriptor = at->path().filename().string();
    if (HoldsFlock(process, descriptor)) return descriptor;
  }
  return "";
}

pid_t TgtdLock::FindHolder() const {
  for (const pid_t process : ListProcesses()) {
    if (HoldsLock(process)) return process;
  }
  return 0;
}

absl::Status TgtdLock::DescribeHolder() const {
  if (const pid_t process = FindHolder(); process != 0) {
    int port = 0;  // its own; the option is the first tgtd's, and the others' follow by their numbers
    const std::string go_back =
        absl::SimpleAtoi(ReadControlPort(process), &port)
            ? absl::StrCat("start with --tgt-control-port=", port - NumberOf(path_), ", or ")
            : "";
    return absl::FailedPreconditionError(
        absl::StrCat("start tgtd: process ", process, " is a tgtd that serves this pool already, it holds ",
                     path_, "; ", go_back, "end it with `kill -9 ", process, "`, which ends its sessions"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "start tgtd: a tgtd that cannot be seen from here, perhaps one in a container, serves this "
      "pool already; end the process that `fuser ",
      path_, "` on the host names"));
}

}  // namespace lunkeeper
