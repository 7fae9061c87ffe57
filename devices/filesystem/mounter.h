#pragma once
// Lists, makes and removes mounts of this machine. The kernel's table is the only state.
// Thread-safe. Nothing is followed or trusted at the last component of a target: a symlink there is refused.
// Every call ends at its deadline, also when the device under a mount is dead (DEADLINE_EXCEEDED).
// Failure, beyond what each call says: the errno's status with what was tried; NOT_FOUND: no such target.

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/filesystem/filesystem.h"

namespace lunkeeper {

struct Mount {
  std::string target;
  dev_t device = 0;  // of the block device whose file system, or whose node, is mounted
  bool is_node = false;
  std::string type;  // of the file system; of /dev for a device node
  bool read_only = false;
  bool file_system_read_only = false;  // all its mounts are: as asked for, or after an error
};

struct MountRequest {
  std::string device;
  std::string target;
  FilesystemType type = FilesystemType::kExt4;
  std::vector<std::string> options;  // checked by CheckMountOptions
  bool read_only = false;
};

class Mounter {
 public:
  virtual ~Mounter() = default;

  // Mounts the file system of a device on a directory, with the defaults of mount_options.h. XFS goes without
  // its check for a unique UUID, since a clone may be mounted beside its source. A read-only device whose
  // journal is not empty (a snapshot of a volume in use) is mounted without replaying it.
  virtual absl::Status MountDevice(const MountRequest& request, absl::Time deadline) = 0;
  // Makes what is at `source` (a mounted directory, or a device node) appear at `target` (a directory, or a
  // file), read-only or not from its first moment on.
  virtual absl::Status Bind(const std::string& source, const std::string& target, bool read_only,
                            absl::Time deadline) = 0;
  // The topmost mount at `target`. OK when nothing is mounted there. FAILED_PRECONDITION: in use. `lazy`
  // takes it out of the tree also when it is in use: only for a device that can never write again.
  virtual absl::Status Unmount(const std::string& target, bool lazy, absl::Time deadline) = 0;
  // Writes back what the file system mounted at `target` has cached, which unmounting it does without telling
  // of errors. DATA_LOSS: some of it could not be written, now or since it was mounted; said once, unless the
  // file system has shut down. While DEADLINE_EXCEEDED, the mount is in use.
  virtual absl::Status WriteBack(const std::string& target, absl::Time deadline) = 0;
  // All mounts of block devices and of their nodes, in the order they were made.
  virtual absl::StatusOr<std::vector<Mount>> Mounts() = 0;
  // Closes a block device to writes, or opens it again: for everybody, whichever node of it they have open.
  // What was written before still reaches the medium. Waits for nothing.
  virtual absl::Status SetReadOnly(const std::string& device, bool read_only) = 0;
  // The number a block device is found by in Mounts(). NOT_FOUND: there is no block device of that name.
  virtual absl::StatusOr<dev_t> NumberOf(const std::string& device) = 0;
};

}  // namespace lunkeeper
