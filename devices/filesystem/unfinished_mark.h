#pragma once
// The mark of an unfinished Make, on the device itself. Each call looks at the device in a child
// (base/child.h), so that a dead one costs its caller a deadline and no more. Stateless. Failure: an errno's
// status; DEADLINE_EXCEEDED.
//
// A Make in progress leaves a mark on the device, 2 MiB before its end, where neither tool writes. It is put
// there only on a device that was blank, and removed before the file system is first mounted, or the device
// used raw: a device that bears it has never held anybody's data, however far the tool came. It has the UUID
// that the file system gets, and says nothing of one with another UUID: that is in use, and a user has
// written the mark. Devices below 8 MiB get none. Both are durable when they return; Mark also wipes what an
// earlier, unfinished Make left at the edges, and keeps its UUID. The answer is the UUID; without a mark it
// is empty.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lunkeeper {

absl::StatusOr<std::string> MarkUnfinished(const std::string& device, absl::Time deadline);
absl::StatusOr<std::string> ReadMark(const std::string& device, absl::Time deadline);
absl::Status ClearUnfinished(const std::string& device, absl::Time deadline);
// Of a marked device whose tool failed, the edges alone: also where the device has no room. The mark stays.
absl::Status WipeUnfinished(const std::string& device, absl::Time deadline);
// Of a device or its image, as those above.
std::string MarkOf(int file, uint64_t bytes);

}  // namespace lunkeeper
