#include "devices/array/tgt/pool_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

// Two seconds. A child executes its program within milliseconds, or within more on a machine that is busy.
constexpr int kAttempts = 100;
constexpr absl::Duration kPause = absl::Milliseconds(20);

}  // namespace

absl::StatusOr<UniqueFd> LockPool(const std::string& directory) {
  const std::string path = directory + "/lock";
  ASSIGN_OR_RETURN(UniqueFd lock, OpenFile(path, O_RDWR | O_CREAT));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK) return FileError("lock", path, errno);
    if (attempt == 0) LogInfo("array", "the pool is still locked, and is waited for", {{"lock", path}});
    absl::SleepFor(kPause);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("open pool ", directory, ": another process has it open; stop that one first"));
}

}  // namespace lunkeeper
