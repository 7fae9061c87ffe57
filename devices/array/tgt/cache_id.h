#pragma once
// What tells an initiator whether the storage host's page cache, which held its acknowledged writes, is still
// the same one: 16 hexadecimal digits, the length of a SCSI product id.
//
// A reboot changes it, and so does each new mount of the pool: a file system that was unmounted, or failed
// and was mounted again, has lost what it had not written. The first mount after a boot has the boot id's own
// digits. A mount is known by the kernel's object for its super block in sysfs, whose inode number is never
// used again: bind mounts and containers do not change it. On file systems without such an object (all but
// XFS, ext4 and btrfs) the boot id alone counts.
//
// An image that its disk has failed to take writes of has a second one from then on (SyncImageFile). A node
// sees one that follows from both, so that it learns of a restart of the host as ever.
//
// A pool that was flushed before it was unmounted (FlushPool) has lost nothing: the next mount, also on
// another host, has the same id, once. So a pool moves in order without an I/O error.
// Functions without state.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lunkeeper {

struct CacheIdPaths {
  std::string boot_id;  // as /proc/sys/kernel/random/boot_id
  std::string pool;
  // Remembers the mount and its id; outside the pool, since a failed file system forgets. Empty, or not to be
  // written, which is logged: the boot id alone counts.
  std::string memory;
};

// Called when the pool is open, so that it stays mounted, and before anything serves it. FAILED_PRECONDITION:
// there is no boot id. Another error: what FlushPool has left there cannot be removed, so nothing may be
// written.
absl::StatusOr<std::string> ReadCacheId(const CacheIdPaths& paths);

// Nobody writes to the pool any more, and it is locked: brings all of it to the disk, and leaves a note of
// that in the pool. May be repeated. An error: the disk did not take it, so what was not flushed may be lost.
// Where all mounts look alike there is no note, and the next mount has another id.
absl::Status FlushPool(const CacheIdPaths& paths);

}  // namespace lunkeeper
