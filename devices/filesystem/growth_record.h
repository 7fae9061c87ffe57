#pragma once
// A durable note that resize2fs is growing an unmounted ext4. resize2fs keeps no journal: killed half-way, as
// with its container, it can leave damage that e2fsck repairs only when it may decide by itself (-y). That is
// allowed only where the cause of the damage is known, and this record is how it is known.
//
// (resize2fs could keep what it overwrites in a file for e2undo: its option -z. In e2fsprogs 1.47.0 a file
// system that was grown with it, to the end, can be damaged by that: "Resize inode not valid".)
//
// A record is an empty file of this node, named after the volume and the use stamp that its superblock had
// then (superblock.h). It says nothing about a file system that was used since, as on another node; it is
// removed then. Thread-safe for different volumes.

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lunkeeper {

class GrowthRecord {
 public:
  // `folder` is made when first needed.
  explicit GrowthRecord(std::string folder) : folder_(std::move(folder)) {}

  // Before resize2fs begins. Durable when it returns.
  absl::Status WriteRecord(const std::string& device, const std::string& volume, absl::Time deadline);
  // Whether a growth of this very state of the file system began, and no RemoveRecords followed.
  absl::StatusOr<bool> HasRecord(const std::string& device, const std::string& volume, absl::Time deadline);
  // The growth is done, or its damage repaired.
  void RemoveRecords(const std::string& volume);

 private:
  absl::StatusOr<std::string> PathFor(const std::string& device, const std::string& volume,
                                      absl::Time deadline);

  const std::string folder_;
};

}  // namespace lunkeeper
