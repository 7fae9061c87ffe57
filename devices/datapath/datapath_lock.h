#pragma once
// The lock beside a control socket: held by the data path that serves there, and by nobody once it is dead.
// Thread-safe; no state but the kernel's.

#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace lunkeeper {

// Held until the last copy of the descriptor is closed. ALREADY_EXISTS: another data path holds it.
absl::StatusOr<UniqueFd> LockSocket(const std::string& socket_path);

// Likewise, of the process that keeps duplicates of a data path's descriptors (duplicate_store.h), while it
// does.
absl::StatusOr<UniqueFd> LockKept(const std::string& socket_path);

// A data path was here, and has died, and nobody keeps its volumes for another one: all that remains are
// orphaned devices (orphaned_devices.h), whose I/O fails for good. False where none was ever here: the path
// may be wrong.
bool IsDatapathDead(const std::string& socket_path);

}  // namespace lunkeeper
