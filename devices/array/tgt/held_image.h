#pragma once
// An image of a pool as of one moment, to be read while a node writes to it: a reflink of its file without a
// name, which is gone with the descriptor, whatever ends the program.
//
// Functions without state; failure as in pool_file.h.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace lunkeeper {

// Two looks at an image found the same content if they found the same version, and that is not
// kUnknownVersion. It is made of the inode, its ctime, and the pool's cache id: a power cut may keep what was
// written last and lose the ctime of it, but it changes the cache id (cache_id.h). Without blanks.
using ImageVersion = std::string;
// The image was written to just now: another write may get the same ctime.
inline constexpr char kUnknownVersion[] = "-";

struct ImageState {
  uint64_t size_bytes = 0;
  ImageVersion version = kUnknownVersion;
};
absl::StatusOr<ImageState> LookAtImage(const std::string& path, const std::string& cache_id);

struct HeldImage {
  UniqueFd fd;
  uint64_t size_bytes = 0;
  ImageVersion version = kUnknownVersion;  // of what is held, or older
};
// Also under the other names that the file of a row may have (pool.h). `made`: its row says that the content
// is all there; without it, a file that is still new is not taken. NOT_FOUND: it has none of the names.
absl::StatusOr<HeldImage> HoldImage(const std::string& path, const std::string& cache_id, bool made);

}  // namespace lunkeeper
