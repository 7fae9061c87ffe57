#pragma once
// A FUSE file system of one file, mounted nowhere: it exists as long as somebody has its file or its mount
// open, and leaves nothing behind. Thread-safe.

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace lunkeeper {

struct FuseMount {
  // /dev/fuse, non-blocking: the requests. Once every copy is closed, all I/O ends in an error.
  UniqueFd device;
  // The detached mount's root, the file (O_PATH); open it through /proc/self/fd.
  UniqueFd root;
  // The kernel can hand a dead worker's requests to its successor.
  bool can_resend = false;
};

// Makes one and answers the kernel's INIT; from then on, requests wait in `device`. Does not wait for
// anybody.
absl::StatusOr<FuseMount> MakeFuseMount();

}  // namespace lunkeeper
