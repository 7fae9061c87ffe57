#pragma once
// Who has a block device exclusively (O_EXCL): a mount, a logical volume, or a tool that works on it, which
// may have outlived the process that started it. Thread-safe.

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lunkeeper {

// Until nobody has the device exclusively, for a few seconds at most: a process that was killed, or the tool
// that it ran, lets its device go a moment later. It may have written until then, so its content has to
// be read afterwards, not before. Failure:
//   ABORTED              a tool for file systems is at work on it; it ends by itself
//   FAILED_PRECONDITION  somebody else keeps it; the message says who, if that can be seen from here
//   DEADLINE_EXCEEDED    the device cannot even be opened, or had no few seconds to be let go
absl::Status AwaitUnused(const std::string& device, absl::Time deadline);

}  // namespace lunkeeper
