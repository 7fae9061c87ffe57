#include "devices/datapath/datapath_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

// A client that looks whether the data path is dead has the lock for a moment.
constexpr int kAttempts = 10;
constexpr useconds_t kPause = 10'000;

std::string LockPath(const std::string& socket_path) { return socket_path + ".lock"; }
std::string KeptPath(const std::string& socket_path) { return socket_path + ".kept"; }

absl::StatusOr<UniqueFd> TakeLock(const std::string& path) {
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) ::usleep(kPause);
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  }
  return absl::AlreadyExistsError(absl::StrCat("another data path holds ", path));
}

bool IsHeld(const std::string& path) {
  const UniqueFd lock(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  return lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
}

}  // namespace

absl::StatusOr<UniqueFd> LockSocket(const std::string& socket_path) {
  return TakeLock(LockPath(socket_path));
}

absl::StatusOr<UniqueFd> LockKept(const std::string& socket_path) { return TakeLock(KeptPath(socket_path)); }

// The store's first: the supervisor's may be free only until a new one has taken the volumes over.
bool IsDatapathDead(const std::string& socket_path) {
  if (IsHeld(KeptPath(socket_path))) return false;
  const UniqueFd lock(::open(LockPath(socket_path).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  return lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace lunkeeper
