#pragma once
// The store of files, with its catalogue in the same directory.

#include <cstdint>

#include "absl/status/statusor.h"
#include "devices/array/tgt/opened_store.h"
#include "devices/array/tgt/tgt_array.h"

namespace lunkeeper {

// `remembered`: how many changes of the catalogue were seen before, 0 for a new one. FAILED_PRECONDITION: as
// OpenTgtArray; nothing was changed.
absl::StatusOr<OpenedStore> OpenFileStore(const TgtArrayOptions& options, uint64_t remembered);

}  // namespace lunkeeper
