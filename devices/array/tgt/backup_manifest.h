#pragma once
// The file `backup` in a backup of a pool: of which array it is, what it has, and whether it is whole. It is
// text, a line for each image as soon as that is on the disk, and a last one when all is. So it also says
// what a backup that broke off need not copy again.
//
//   lunkeeper backup 1
//   array rack1
//   file volumes/rack1-v0123456789abcdef 1073741824 5a1f… 77…  size, digest (ImageDigest), version
//   gone snapshots/rack1-s0123456789abcdef                     it is not in the backup, or will be anew
//   whole
//   opened                                                     an agent has it as its pool
//
// Functions without state. Failure: as pool_file.h; FAILED_PRECONDITION: the file is not such a text.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/held_image.h"

namespace lunkeeper {

inline constexpr char kBackupManifest[] = "backup";

struct BackedUpFile {
  uint64_t size_bytes = 0;
  std::string digest;
  ImageVersion version = kUnknownVersion;  // of what was copied, in the pool
};

struct BackupManifest {
  std::string array;
  std::map<std::string, BackedUpFile> files;  // by their path in the folder; the last line of a path counts
  bool whole = false;
  bool opened = false;  // so the catalogue is no more what was written, and a log beside it is its own
};

// The digest of an image: of all its blocks that are not zero, so that holes do not count.
class ImageDigest {
 public:
  void AddBlock(uint64_t offset, std::string_view block);
  std::string text() const;  // of hexadecimal digits

 private:
  std::string chain_;
};

// NOT_FOUND: the folder has no such file. What follows the last end of a line was cut off by a crash, and is
// ignored.
absl::StatusOr<BackupManifest> ReadBackupManifest(const std::string& folder);
absl::StatusOr<BackupManifest> ParseBackupManifest(const std::string& text);

// Begins the file, or continues it.
absl::StatusOr<UniqueFd> OpenBackupManifest(const std::string& folder, const std::string& array);
// On the disk when it returns OK.
absl::Status AppendBackedUpFile(const UniqueFd& manifest, const std::string& path, const BackedUpFile& file);
absl::Status AppendGone(const UniqueFd& manifest, const std::string& path);
absl::Status AppendWhole(const UniqueFd& manifest);
// Of one that is whole; on the disk when it returns OK.
absl::Status MarkBackupOpened(const std::string& folder);

// The folder is a backup no more.
absl::Status RemoveBackupManifest(const std::string& folder);

}  // namespace lunkeeper
