#pragma once
// The lock on a pool's directory: one program at a time has the pool open, an agent or a command.
// Thread-safe; no state but the kernel's.

#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace lunkeeper {

// Held until the last copy of the descriptor is closed. A program that was killed may have left a child
// behind that has one until it executes another program. So a lock that is held is waited for, for a moment,
// and the log says so. FAILED_PRECONDITION: another program has the pool open.
absl::StatusOr<UniqueFd> LockPool(const std::string& directory);

}  // namespace lunkeeper
