#pragma once
// Which mount options a user may set: StorageClasses and volumes name them, and the node mounts as root. A
// pure function.

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lunkeeper {

// INVALID_ARGUMENT, naming the option, for options that change what is mounted, where or by whom (bind, loop,
// logdev=, X-) or switch off what keeps the data whole, and for anything that is not plain printable text.
absl::Status CheckMountOptions(const std::vector<std::string>& options);

}  // namespace lunkeeper
