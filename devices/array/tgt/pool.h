#pragma once
// The files of an array: one for each volume and snapshot, in one directory on one file system.
//
// Thread-safe: calls about different files go on at the same time; the caller keeps calls about one file
// apart. What a call has made is on the disk, with its directory entry, when it returns OK; a call that fails
// leaves nothing behind. One process owns the directory (flock) while the Pool lives. Failure:
// RESOURCE_EXHAUSTED the pool is full; INTERNAL any other error of the file system.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/array/array.h"

namespace lunkeeper {

class Pool {
 public:
  // Makes the directory if need be. FAILED_PRECONDITION: another process owns it, or its path has a comma
  // (tgtd's separator) or is not absolute.
  static absl::StatusOr<std::unique_ptr<Pool>> Open(const std::string& directory);

  std::string VolumePath(const VolumeId& id) const;
  std::string SnapshotPath(const SnapshotId& id) const;
  std::string HeartbeatLunPath(Generation generation) const;
  std::string CataloguePath() const;
  std::string TgtdLockPath() const;
  // Whether copies are reflinks: at once, of one moment, and sharing space.
  bool reflinks() const { return reflinks_; }

  absl::Status CreateFile(const std::string& path, uint64_t size_bytes, Provisioning provisioning) const;
  // A reflink of `from`, grown to `size_bytes`. It shows `from` as of one moment, even while a node writes to
  // it.
  absl::Status CloneFile(const std::string& from, const std::string& to, uint64_t size_bytes,
                         Provisioning provisioning) const;
  // The same by copying what is allocated; nobody may write to `from`. Calls `progress` between chunks with
  // how many bytes are done; it returns false to give up (CANCELLED).
  absl::Status CopyFile(const std::string& from, const std::string& to, uint64_t size_bytes,
                        Provisioning provisioning, const std::function<bool(uint64_t)>& progress) const;
  absl::Status GrowFile(const std::string& path, uint64_t size_bytes, Provisioning provisioning) const;
  // The file of a heartbeat LUN, made if need be. Its space is allocated, so that a full pool keeps no
  // heartbeat out.
  absl::StatusOr<UniqueFd> OpenHeartbeatLunFile(const std::string& path) const;
  // OK when there is none.
  absl::Status RemoveFile(const std::string& path) const;
  // Every file of a volume or snapshot.
  absl::StatusOr<std::vector<std::string>> ListFiles() const;
  // Puts a file that the catalogue knows nothing of aside, into orphans/.
  absl::Status SetAside(const std::string& path) const;
  absl::StatusOr<PoolCapacity> MeasureCapacity() const;

 private:
  Pool(std::string directory, UniqueFd lock) : directory_(std::move(directory)), lock_(std::move(lock)) {}
  absl::StatusOr<bool> TryReflink() const;
  absl::Status WriteNewFile(const std::string& path, const std::function<absl::Status(int)>& fill) const;

  const std::string directory_;
  const UniqueFd lock_;
  bool reflinks_ = false;
};

}  // namespace lunkeeper
