#include "devices/array/tgt/tgt_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/node_id.h"

namespace lunkeeper {

absl::StatusOr<KeyedLock::Guard> LockObject(const TgtParts& parts, const std::string& name) {
  auto guard = parts.object_locks.TryLock(name);
  if (guard.has_value()) return *std::move(guard);
  return absl::AbortedError(absl::StrCat(name, ": another call is working on it; try again"));
}

absl::StatusOr<uint64_t> ReadShownSize(const TgtParts& parts, const Volume& volume) {
  ASSIGN_OR_RETURN(const uint64_t size, parts.images.ReadSize(parts.images.VolumePath(volume.id)));
  return std::max(size, volume.spec.size_bytes);
}

absl::Status CheckNodeId(const NodeId& node) {
  const std::string& name = node.value();
  const bool fine =
      !name.empty() && name.size() <= 190 &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-_:ABCDEFGHIJKLMNOPQRSTUVWXYZ") ==
          std::string::npos;
  if (IsMachineId(node))
    return absl::InvalidArgumentError(
        absl::StrCat("node '", name, "': this names all instances of a machine, and not a node"));
  if (fine) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "node '", name, "': a node's id has 1 to 190 letters, digits, dots, dashes, underscores or colons"));
}

}  // namespace lunkeeper
