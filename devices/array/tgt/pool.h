#pragma once
// The files of an array: one for each volume and snapshot, in one directory on one file system.
//
// Thread-safe: calls about different files go on at the same time; the caller keeps calls about one file
// apart. What a call has made is on the disk, with its directory entry, when it returns OK; a call that fails
// leaves nothing behind. One process owns the directory (flock) while the Pool lives. Failure:
// RESOURCE_EXHAUSTED the pool is full; INTERNAL any other error of the file system.
//
// A file is made as ID.new, and becomes ID by KeepFile when its row is stored. To be deleted it becomes
// ID.gone while its row still is there. So a file called ID without a row is not of a call that was cut
// short: somebody restored, copied or lost a catalogue, and such a file is set aside, never deleted.

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "devices/array/array.h"
#include "devices/array/tgt/ballast.h"

namespace lunkeeper {

// A file that was set aside.
struct OrphanFile {
  std::string name;          // in orphans/
  uint64_t taken_bytes = 0;  // of the pool
  absl::Time changed;
};

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

  // These three make `path`.new.
  absl::Status CreateFile(const std::string& path, uint64_t size_bytes, Provisioning provisioning) const;
  // A reflink of `from`, grown to `size_bytes`. It shows `from` as of one moment, even while a node writes to
  // it. With `own_space` nothing stays shared, so that a write to either file needs no new space; that takes
  // as long as a copy. FAILED_PRECONDITION: the file system cannot do that.
  absl::Status CloneFile(const std::string& from, const std::string& to, uint64_t size_bytes,
                         Provisioning provisioning, bool own_space) const;
  // The same by copying what is allocated; nobody may write to `from`. Calls `progress` between chunks with
  // how many bytes are done; it returns false to give up (CANCELLED).
  absl::Status CopyFile(const std::string& from, const std::string& to, uint64_t size_bytes,
                        Provisioning provisioning, const std::function<bool(uint64_t)>& progress) const;
  // Gives a file that was made its name; OK when it has it. The row is stored.
  absl::Status KeepFile(const std::string& path) const;
  // Deletes a file that was made and not kept.
  void DropNewFile(const std::string& path) const;
  // Makes the file `path`.gone, on the disk, before its row goes. OK when there is none.
  absl::Status MarkDeleted(const std::string& path) const;
  // Gives a marked file its name back.
  absl::Status UnmarkDeleted(const std::string& path) const;
  // Deletes a marked file, whose row is gone.
  absl::Status RemoveMarked(const std::string& path) const;
  // What was written to the file is on the disk.
  absl::Status SyncFile(const std::string& path) const;
  absl::Status GrowFile(const std::string& path, uint64_t size_bytes, Provisioning provisioning) const;
  // What a file takes of the pool.
  absl::StatusOr<uint64_t> MeasureFile(const std::string& path) const;
  // The file of a heartbeat LUN, made if need be. Its space is allocated, so that a full pool keeps no
  // heartbeat out.
  absl::StatusOr<UniqueFd> OpenHeartbeatLunFile(const std::string& path) const;
  // OK when there is none.
  absl::Status RemoveHeartbeatLunFile(Generation generation) const;
  // Every file of a volume or snapshot.
  absl::StatusOr<std::vector<std::string>> ListFiles() const;
  // At a start. `known`: the paths that rows point to. Finishes or undoes what a crash cut short, and moves
  // each file that is no row's into orphans/. Never deletes a file but ID.new and ID.gone without a row,
  // where ID begins with `prefix`.
  absl::Status TidyFiles(const std::set<std::string>& known, const std::string& prefix) const;
  // The files in orphans/, for an operator to look at, by name.
  absl::StatusOr<std::vector<OrphanFile>> ListOrphans() const;
  // For good. NOT_FOUND: there is none of this name.
  absl::Status DeleteOrphan(const std::string& name) const;
  absl::StatusOr<PoolCapacity> MeasureCapacity() const;
  // For what must go on when the pool is full; deletions take it by themselves.
  Ballast& ballast() const { return ballast_; }

 private:
  Pool(const std::string& directory, UniqueFd lock)
      : directory_(directory), lock_(std::move(lock)), ballast_(directory + "/ballast") {}
  absl::StatusOr<bool> TryReflink() const;
  // As rename, but never over another file.
  absl::Status RenameFile(const std::string& from, const std::string& to) const;
  absl::Status SetAside(const std::string& path) const;
  absl::Status WriteNewFile(const std::string& path, const std::function<absl::Status(int)>& fill) const;

  const std::string directory_;
  const UniqueFd lock_;
  bool reflinks_ = false;
  mutable Ballast ballast_;
};

}  // namespace lunkeeper
