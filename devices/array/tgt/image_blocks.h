#pragma once
// Reads all of an image, without what it has no data of. Functions without state; failure as in pool_file.h.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lunkeeper {

// Calls `each` for every block that is not zero, in order; its error ends the reading. `path` is for
// messages.
absl::Status ForEachBlock(int fd, const std::string& path,
                          const std::function<absl::Status(uint64_t offset, std::string_view block)>& each);
// The ImageDigest of all that is read. `watch` is called for each block, and returns false to give up
// (CANCELLED).
absl::StatusOr<std::string> DigestFile(int fd, const std::string& path,
                                       const std::function<bool(uint64_t bytes)>& watch);

}  // namespace lunkeeper
