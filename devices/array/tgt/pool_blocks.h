#pragma once
// Where a file of a pool has data, and where two of them differ, a page at a time. The file system knows that
// without its data; none are read. Functions without state, thread-safe. A call ends
// soon, whatever the files are like: it then returns a page with few ranges, or with none.
//
// Neither file may change meanwhile. Failure: as pool_file.h.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

// All of `image` that may be other than zero.
absl::StatusOr<BlockPage> FindData(const PoolImage& image, uint64_t offset, size_t limit);
// All of `image` that may be other than in `base`; or ChangesAreUnknown, as this file system does not tell.
absl::StatusOr<BlockPage> FindChanges(const PoolImage& base, const PoolImage& image, uint64_t offset,
                                      size_t limit);

// FAILED_PRECONDITION, and what to do.
absl::Status ChangesAreUnknown();

}  // namespace lunkeeper
