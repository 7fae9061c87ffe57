#pragma once
// Watches the file of an image for errors of writing back, by a descriptor of its own.
//
// The kernel reports such an error once, to each who has the file open then. tgtd passes it on to the session
// whose flush has met it. Where that session has ended meanwhile its node never learns it: it repeats the
// flush, which succeeds. So the array looks as well; the image then has a cache id of its own (cache_id.h),
// by which a node learns it when it logs in. Thread-safe.

#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace lunkeeper {

class ImageErrors {
 public:
  // From now on. One that cannot be opened is not watched.
  explicit ImageErrors(std::string path);
  bool is_watching() const { return static_cast<bool>(file_); }
  // Looks, which waits for no page, and returns the image's own cache id; empty: the array's.
  absl::StatusOr<std::string> ReadCacheId() const;

 private:
  const std::string path_;
  const UniqueFd file_;
};

}  // namespace lunkeeper
