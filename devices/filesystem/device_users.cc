// The kernel says that a device is taken, not who has it. So that is looked for where it may be seen: what is
// built upon the device (holders), the table of mounts, and the processes that have it open. None of these
// looks touches the device, which may be dead.
#include "devices/filesystem/device_users.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/child.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLongestWait = absl::Seconds(5);
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(50);
// As the kernel shows them, with 15 characters at most.
constexpr std::array<std::string_view, 4> kTools = {"mke2fs", "mkfs.xfs", "e2fsck", "resize2fs"};
// The data path has each of its devices open, for as long as it serves it, and not exclusively.
constexpr std::string_view kDataPath = "lunkeeper";
constexpr size_t kMostNamed = 5;

struct Process {
  std::string number, name;
};

// False where this kernel does not let anybody look.
bool HasOpen(const std::filesystem::path& process, const std::string& device) {
  std::error_code error, unreadable;
  for (std::filesystem::directory_iterator at(process / "fd", error), end; !error && at != end;
       at.increment(error)) {
    if (std::filesystem::read_symlink(at->path(), unreadable) == device) return true;
  }
  return false;
}

std::vector<Process> ProcessesThatHave(const std::string& device) {
  std::vector<Process> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    Process process{.number = at->path().filename(), .name = {}};
    if (process.number.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!HasOpen(at->path(), device)) continue;
    std::ifstream comm(at->path() / "comm");
    std::getline(comm, process.name);
    found.push_back(std::move(process));
  }
  return found;
}

// A logical volume or an array of disks, by its kernel's name.
std::vector<std::string> BuiltUpon(const std::string& device) {
  std::vector<std::string> found;
  const std::string name = std::filesystem::path(device).filename();
  std::error_code error;
  for (std::filesystem::directory_iterator at(absl::StrCat("/sys/class/block/", name, "/holders"), error),
       end;
       !error && at != end; at.increment(error))
    found.push_back(absl::StrCat("/dev/", at->path().filename().string()));
  return found;
}

std::vector<std::string> MountPointsOf(const std::string& device) {
  std::vector<std::string> found;
  std::ifstream table("/proc/self/mounts");
  for (std::string source, target, rest; table >> source >> target && std::getline(table, rest);)
    if (source == device) found.push_back(absl::StrCat("the mount at ", target));
  return found;
}

bool IsTool(const Process& process) {
  return std::find(kTools.begin(), kTools.end(), process.name) != kTools.end();
}

absl::Status StaysInUse(const std::string& device) {
  std::vector<std::string> users = BuiltUpon(device);
  for (std::string& mount : MountPointsOf(device)) users.push_back(std::move(mount));
  for (const Process& process : ProcessesThatHave(device)) {
    if (process.name == kDataPath) continue;
    std::string user = absl::StrCat(process.name, " (process ", process.number, ")");
    if (IsTool(process))
      return absl::AbortedError(absl::StrCat(user, " is still at work on ", device,
                                             ", and is left to finish; repeat the call, which waits for it"));
    users.push_back(std::move(user));
  }
  users.resize(std::min(users.size(), kMostNamed));
  return absl::FailedPreconditionError(absl::StrCat(
      "device ", device, " stays in use, by ",
      users.empty() ? "nobody that can be seen from here: mostly a mount in another container's namespace"
                    : absl::StrJoin(users, ", "),
      "; end that, then try again"));
}

absl::StatusOr<bool> IsInUse(const std::string& device, absl::Time deadline) {
  const auto look = [&device](int) {
    const UniqueFd opened(::open(device.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC));
    return opened ? 0 : errno == EBUSY ? EEXIST : errno;
  };
  const absl::Status looked =
      CallInChild({.subject = absl::StrCat("opening ", device), .deadline = deadline}, look).status();
  if (absl::IsAlreadyExists(looked)) return true;
  RETURN_IF_ERROR(looked);
  return false;
}

}  // namespace

absl::Status AwaitUnused(const std::string& device, absl::Time deadline) {
  const SteadyDeadline call(deadline), limit(std::min(call.left(), kLongestWait));
  while (true) {
    ASSIGN_OR_RETURN(const bool in_use, IsInUse(device, deadline));
    if (!in_use) return absl::OkStatus();
    if (limit.left() <= kBetweenLooks) {
      const absl::Status used = StaysInUse(device);
      // A short wait proves nothing of a user that only passes by, as a container that starts.
      const bool cut_short = absl::IsFailedPrecondition(used) && call.left() <= kBetweenLooks;
      return cut_short ? absl::DeadlineExceededError(used.message()) : used;
    }
    absl::SleepFor(kBetweenLooks);
  }
}

}  // namespace lunkeeper
