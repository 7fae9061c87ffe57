// The mount is made by the calls of Linux 5.2 (fsopen, fsconfig, fsmount) and never attached to a directory.
// So no other process can see it, nothing has to be unmounted, and it is gone when its last descriptor is
// closed, however this process ends. The root is a regular file ("rootmode=0100600"), which the kernel
// allows: the whole file system is that one file. Documentation/filesystems/fuse.rst has the options.

#include "devices/datapath/fuse_mount.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "devices/datapath/fuse_wire.h"

namespace lunkeeper {
namespace {

// The wrappers came with glibc 2.36; their header does not go with linux/mount.h.
int FsOpen(const char* type) { return static_cast<int>(::syscall(SYS_fsopen, type, FSOPEN_CLOEXEC)); }
int FsConfig(int context, unsigned command, const char* key, const char* value) {
  return static_cast<int>(::syscall(SYS_fsconfig, context, command, key, value, 0));
}
int FsMount(int context) {
  return static_cast<int>(
      ::syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID));
}

absl::StatusOr<UniqueFd> MountDetached(int device) {
  UniqueFd context(FsOpen("fuse"));
  if (!context) return absl::ErrnoToStatus(errno, "making a FUSE file system (does this kernel have FUSE?)");
  const std::array<std::pair<const char*, std::string>, 5> options = {{
      {"fd", std::to_string(device)},
      {"rootmode", "0100600"},  // a regular file
      {"user_id", "0"},
      {"group_id", "0"},
      {"max_read", std::to_string(fuse::kMaxTransfer)},
  }};
  for (const auto& [key, value] : options) {
    if (FsConfig(context.get(), FSCONFIG_SET_STRING, key, value.c_str()) != 0) {
      return absl::ErrnoToStatus(errno, std::string("setting the FUSE option ") + key);
    }
  }
  if (FsConfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr) != 0) {
    return absl::ErrnoToStatus(errno, "making a FUSE file system");
  }
  UniqueFd root(FsMount(context.get()));
  if (!root) return absl::ErrnoToStatus(errno, "making a FUSE mount");
  return root;
}

// INIT is queued by the mount itself, and is all that can be there. It is answered here rather than by the
// worker: the kernel asks it once in the life of a connection, and workers come and go.
absl::StatusOr<bool> AnswerFirstRequest(int device) {
  alignas(8) char request[FUSE_MIN_READ_BUFFER];
  const ssize_t size = ::read(device, request, sizeof(request));
  if (size < 0) return absl::ErrnoToStatus(errno, "reading the kernel's first FUSE request");
  const auto answer = fuse::AnswerInit(request, static_cast<size_t>(size));
  if (!answer)
    return absl::FailedPreconditionError("this kernel's FUSE protocol is older than 7.31 (Linux 5.4)");
  if (::write(device, &answer->packet, sizeof(answer->packet)) < 0) {
    return absl::ErrnoToStatus(errno, "answering the kernel's first FUSE request");
  }
  return answer->can_resend;
}

}  // namespace

absl::StatusOr<FuseMount> MakeFuseMount() {
  FuseMount mount;
  mount.device.Reset(::open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!mount.device) return absl::ErrnoToStatus(errno, "opening /dev/fuse");
  ASSIGN_OR_RETURN(mount.root, MountDetached(mount.device.get()));
  ASSIGN_OR_RETURN(mount.can_resend, AnswerFirstRequest(mount.device.get()));
  return mount;
}

}  // namespace lunkeeper
