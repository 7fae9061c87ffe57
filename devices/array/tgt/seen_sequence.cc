#include "devices/array/tgt/seen_sequence.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"

namespace lunkeeper {

absl::StatusOr<std::unique_ptr<SeenSequence>> SeenSequence::Open(const std::string& path) {
  std::unique_ptr<SeenSequence> seen(new SeenSequence(path));
  if (path.empty()) return seen;
  seen->file_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!seen->file_) {
    return absl::FailedPreconditionError(absl::StrCat("open array: ", path, ": ", std::strerror(errno)));
  }
  char text[32] = {};
  const ssize_t size = ::pread(seen->file_.get(), text, sizeof(text) - 1, 0);
  if (size == 0) return seen;
  if (size > 0 && absl::SimpleAtoi(text, &seen->at_open_)) return seen;
  return absl::FailedPreconditionError(
      absl::StrCat("open array: ", path, " holds no number; remove it if the pool is the newest"));
}

// Not synced here, because every change would then wait for a second disk. A power cut may lose the last
// second of it; a restore from a backup is older than that.
void SeenSequence::Remember(uint64_t sequence) {
  if (!file_) return;
  const absl::MutexLock lock(&mu_);
  if (sequence <= remembered_) return;
  // Always of one length, so that one write replaces the whole number.
  const std::string text = absl::StrFormat("%020u\n", sequence);
  if (::pwrite(file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
    remembered_ = sequence;
  } else {
    LogWarn("array", "cannot remember the sequence", {{"file", path_}});
  }
}

void SeenSequence::SyncToDisk() {
  if (file_) ::fdatasync(file_.get());
}

}  // namespace lunkeeper
