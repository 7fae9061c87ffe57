#pragma once
// The id of this node, `<name>.<instance>`. The instance is 16 random hexadecimal digits, made when the
// driver first runs on a host and kept in its state directory. So a re-created machine with an old name is
// another node, and the old one stays fenced. Thread-safe, also against other processes.

#include <string>

#include "absl/status/statusor.h"
#include "devices/types.h"

namespace lunkeeper {

// Reads `<state_dir>/node-instance`, or makes it (durable before it is returned). INVALID_ARGUMENT: the name
// is empty, longer than 173 bytes, or has characters other than letters, digits, '.', '-' and '_'.
// FAILED_PRECONDITION: the file is there and holds something else; it is never replaced, since a new identity
// would walk out of a fence.
absl::StatusOr<NodeId> LoadNodeId(const std::string& name, const std::string& state_dir);

}  // namespace lunkeeper
