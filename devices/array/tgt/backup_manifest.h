#pragma once
// The file `backup` in a backup of a pool: of which array it is, what it has, and whether it is whole. It is
// text, a line for each image as soon as that is on the disk, and a last one when all is. So it also says
// what a backup that broke off need not copy again.
//
//   lunkeeper backup 1
//   array rack1
//   file volumes/rack1-v0123456789abcdef 1073741824 5a1f…     size, digest (ImageDigest)
//   gone snapshots/rack1-s0123456789abcdef                    it was deleted before the backup was whole
//   whole
//
// Functions without state. Failure: as pool_file.h; FAILED_PRECONDITION: the file is not such a text.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace lunkeeper {

inline constexpr char kBackupManifest[] = "backup";

struct BackedUpFile {
  uint64_t size_bytes = 0;
  std::string digest;
};

struct BackupManifest {
  std::string array;
  std::map<std::string, BackedUpFile> files;  // by their path in the folder; the last line of a path counts
  bool whole = false;
};

// The digest of an image: of all its blocks that are not zero, so that holes do not count.
class ImageDigest {
 public:
  void AddBlock(uint64_t offset, std::string_view block);
  std::string text() const;  // of hexadecimal digits

 private:
  std::string chain_;
};

// NOT_FOUND: the folder has none. What follows the last end of a line was cut off by a crash, and is ignored.
absl::StatusOr<BackupManifest> ReadBackupManifest(const std::string& folder);
absl::StatusOr<BackupManifest> ParseBackupManifest(const std::string& text);

// Begins the file, or continues it.
absl::StatusOr<UniqueFd> OpenBackupManifest(const std::string& folder, const std::string& array);
// On the disk when it returns OK.
absl::Status AppendBackedUpFile(const UniqueFd& manifest, const std::string& path, const BackedUpFile& file);
absl::Status AppendGone(const UniqueFd& manifest, const std::string& path);
absl::Status AppendWhole(const UniqueFd& manifest);

// The folder is a backup no more.
absl::Status RemoveBackupManifest(const std::string& folder);

}  // namespace lunkeeper
