#pragma once
// The folder of a backup that is being made: the files in it, and what its manifest says of them. One at a
// time has it (a lock on the manifest), and it is root's alone.
//
// The manifest names a file as soon as that is on the disk, and no longer than that is there: so whatever
// ends the program, the next one knows what it can keep. Not thread-safe.
//
// Failure: FAILED_PRECONDITION as BackUpPool says; ABORTED: another one has it; RESOURCE_EXHAUSTED: its file
// system is full; INTERNAL: any other error of it.

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/backup_manifest.h"
#include "devices/array/tgt/held_image.h"

namespace lunkeeper {

// `name`: always a file's path in the folder.
class BackupFolder {
 public:
  // Begins a backup of this array and pool there, or continues it.
  static absl::StatusOr<std::unique_ptr<BackupFolder>> Open(const std::string& folder,
                                                            const std::string& pool,
                                                            const std::string& array);

  std::string PathOf(const std::string& name) const;
  // What an earlier call has written and is still there, of this size; or nothing.
  const BackedUpFile* FindFile(const std::string& name) const;
  // Removes every image but those for which `is_kept`.
  absl::Status DiscardImages(const std::function<bool(const std::string& name)>& is_kept);
  // OK when it is not there.
  absl::Status Discard(const std::string& name);
  // Writes a new file of the image, and lists it when it is on the disk. `watch` is asked after each block
  // and at the end; its error gives up.
  absl::Status CopyIn(const std::string& name, const HeldImage& image,
                      const std::function<absl::Status(uint64_t bytes)>& watch);
  // Lists the catalogue, which is there; and then the backup is whole.
  absl::Status Finish();

 private:
  BackupFolder(std::string folder, std::string what) : folder_(std::move(folder)), what_(std::move(what)) {}
  absl::Status CheckIsElsewhere(const std::string& pool) const;
  absl::Status CheckIsFree() const;
  absl::Status OpenManifest(const std::string& array);
  absl::Status MakeImageFolders() const;
  absl::Status DiscardUnlisted();
  absl::Status DropFromCache(int fd, const std::string& path) const;
  absl::Status FolderError(const char* doing, const std::string& path, int error) const;

  const std::string folder_;
  const std::string what_;  // begins each message
  UniqueFd file_;           // the manifest, locked
  BackupManifest manifest_;
};

// The names of all images in a backup, listed or not. A folder that is missing had none: not every program
// copies one that is empty.
absl::StatusOr<std::set<std::string>> ListBackupImages(const std::string& folder);

}  // namespace lunkeeper
