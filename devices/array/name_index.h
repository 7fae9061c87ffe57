#pragma once
// Which object of an array has a name. See devices/array/array.h for threads, durability and failure.

#include <string>

#include "absl/status/statusor.h"

namespace lunkeeper {

enum class NamedKind { kVolume, kSnapshot, kSnapshotGroup };

class NameIndex {
 public:
  virtual ~NameIndex() = default;

  // The id of the one that has this name; also of a volume whose source is still being copied. Empty: there
  // is none, and no call is making one. ABORTED: a call is making or deleting it at this moment. Answers
  // within seconds, or fails.
  virtual absl::StatusOr<std::string> FindNamed(NamedKind kind, const std::string& name) = 0;
};

}  // namespace lunkeeper
