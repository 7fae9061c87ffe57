#pragma once
// Room that a pool keeps for itself: one file of allocated space, which it releases when the catalogue or a
// deletion meets a full disk. So a full pool can always be emptied.
//
// Thread-safe. Without room for it there is no ballast, or a smaller one, and that is no error.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/unique_fd.h"

namespace lunkeeper {

class Ballast {
 public:
  // `path`: the file, found or made; its space is taken by ReserveSpace. `rest`: what was released is not
  // reserved again for so long, since somebody is about to use it.
  explicit Ballast(std::string path, std::chrono::nanoseconds rest = std::chrono::seconds(5));

  // Frees the space, on the disk. False: there was none to free.
  bool ReleaseSpace() ABSL_LOCKS_EXCLUDED(mu_);
  // Takes what is missing, but never more than half of what is free. Cheap when nothing is missing.
  void ReserveSpace() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::string path_;
  // Measured in place of the file: a project quota is the size of a folder, and not of the files in it.
  const std::string folder_;
  absl::Mutex mu_;
  const UniqueFd fd_;  // none: the file could not be made
  const std::chrono::nanoseconds rest_;
  std::optional<std::chrono::steady_clock::time_point> released_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
