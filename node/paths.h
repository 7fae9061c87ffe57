#pragma once
// Paths that orchestrators send: checked, and resolved to the form that the kernel's mount table has them in.
// Thread-safe. Failure: INVALID_ARGUMENT naming the field, unless a comment says more. The last component is
// never followed or opened, since the file system mounted there may be dead.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lunkeeper {

enum class PathKind { kDirectory, kFile };

// Absolute, at most 4095 bytes, no control characters, no `.` or `..`, not the root.
absl::Status CheckPath(const std::string& path, const char* field);
// The path with symlinks of its parent directories resolved. NOT_FOUND: the parent does not exist.
absl::StatusOr<std::string> ResolvePath(const std::string& path, const char* field);
// The path is a directory (and not a symlink to one).
absl::Status RequireDirectory(const std::string& path, const char* field);

// Makes an empty directory or file unless there is one; true: made now. The parent must exist. For a file, an
// empty directory is replaced.
absl::StatusOr<bool> MakeTarget(const std::string& path, PathKind kind);
// Removes the empty directory or the file; OK when there is nothing. FAILED_PRECONDITION: there is something
// in it.
absl::Status RemoveTarget(const std::string& path);
bool PathExists(const std::string& path);

}  // namespace lunkeeper
