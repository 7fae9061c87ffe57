// Each system call that may touch a device or a mount is made by a child, with a deadline: a mount of a dead
// device waits in the kernel, out of reach of any signal.
//
// A target's path is checked and then opened once (OpenTarget); the mount goes on that descriptor. The
// directories on the way belong to kubelet and to pods, so the path could lead elsewhere a moment later; the
// descriptor cannot.

#include "devices/filesystem/linux_mounter.h"

#include <fcntl.h>
#include <libmount/libmount.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/child.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "devices/filesystem/mount_options.h"

namespace lunkeeper {
namespace {

// A mount that nobody uses is busy for a moment while a mount namespace is copied, as for each new container.
constexpr int kUnmountAttempts = 40;
constexpr useconds_t kUnmountPause = 50'000;
constexpr char kBusy = 'b';      // sent by a child: the mount is in use
constexpr char kNoReplay = 'n';  // sent by a child: mounted without replaying the journal

// What a file system answers that could not write. The others are failures of the call itself.
bool TellsOfLoss(int error) {
  return error == EIO || error == ENOSPC || error == EDQUOT || error == EROFS || error == EUCLEAN;
}

absl::Status CheckTarget(const std::string& target) {
  struct stat found = {};
  if (::lstat(target.c_str(), &found) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("mount target ", target));
  if (!S_ISLNK(found.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("mount target ", target, " is a symlink; give the directory itself"));
}

// The target itself, whatever was put in its place since it was checked. For children: sets errno on failure.
UniqueFd OpenTarget(const char* target) {
  UniqueFd at(::open(target, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat found = {};
  if (!at || ::fstat(at.get(), &found) != 0 || !S_ISLNK(found.st_mode)) return at;
  at.Reset();
  errno = ELOOP;
  return at;
}

// On the directory that was opened, which no rename or symlink can change. For children: 0 or an errno.
int MountOn(const char* device, const char* target, const char* type, unsigned long flags, const char* data) {
  const UniqueFd at = OpenTarget(target);
  if (!at || ::fchdir(at.get()) != 0) return errno;
  return ::mount(device, ".", type, flags, data) == 0 ? 0 : errno;
}

struct KernelOptions {
  unsigned long flags = 0;
  std::string data;
};

// Flags for the kernel, and text for the file system, as mount(8) would split them.
absl::StatusOr<KernelOptions> SplitOptions(const std::string& text) {
  KernelOptions result;
  char* data = nullptr;
  if (::mnt_optstr_get_flags(text.c_str(), &result.flags, ::mnt_get_builtin_optmap(MNT_LINUX_MAP)) != 0 ||
      ::mnt_split_optstr(text.c_str(), nullptr, nullptr, &data, 0, 0) != 0) {
    return absl::InvalidArgumentError("mount_flags: cannot be read as mount options");
  }
  if (data != nullptr) result.data = data;
  ::free(data);
  return result;
}

std::string AppendOption(const std::string& data, const char* option) {
  return data.empty() ? option : absl::StrCat(data, ",", option);
}

bool IsNodeHolder(const std::string& type) { return type == "devtmpfs" || type == "tmpfs"; }

// The block device that a bound file of /dev stands for; 0: it is none.
dev_t NodeAt(const std::string& target) {
  const UniqueFd at(::open(target.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat found = {};
  return at && ::fstat(at.get(), &found) == 0 && S_ISBLK(found.st_mode) ? found.st_rdev : 0;
}

std::optional<Mount> ReadEntry(libmnt_fs* entry) {
  const auto text = [](const char* value) { return std::string(value == nullptr ? "" : value); };
  Mount mount;
  mount.target = text(::mnt_fs_get_target(entry));
  mount.device = ::mnt_fs_get_devno(entry);
  mount.type = text(::mnt_fs_get_fstype(entry));
  const auto has = [](const std::string& options, const char* name) {
    char* value = nullptr;
    size_t size = 0;
    return ::mnt_optstr_get_option(options.c_str(), name, &value, &size) == 0;
  };
  mount.read_only = has(text(::mnt_fs_get_vfs_options(entry)), "ro");
  const std::string options = text(::mnt_fs_get_fs_options(entry));
  // After an error an ext4 of Linux 6.15 and later says emergency_ro, and an earlier one ro.
  mount.file_system_read_only =
      has(options, "ro") || has(options, "emergency_ro") || has(options, "shutdown");
  // A device number with major 0 is no block device: tmpfs, overlay, a network file system. Of those only
  // /dev is of interest, where a bound node stands for the device itself.
  if (major(mount.device) != 0) return mount;
  if (!IsNodeHolder(mount.type) || text(::mnt_fs_get_root(entry)) == "/") return std::nullopt;
  mount.device = NodeAt(mount.target);
  mount.is_node = true;
  return mount.device == 0 ? std::nullopt : std::optional<Mount>(mount);
}

class LinuxMounter final : public Mounter {
 public:
  absl::Status MountDevice(const MountRequest& request, absl::Time deadline) override {
    RETURN_IF_ERROR(CheckMountOptions(request.options));
    ASSIGN_OR_RETURN(KernelOptions options, SplitOptions(WithDefaultOptions(request.type, request.options)));
    RETURN_IF_ERROR(CheckTarget(request.target));
    const bool xfs = request.type == FilesystemType::kXfs;
    if (request.read_only) options.flags |= MS_RDONLY;
    // XFS refuses a UUID that is mounted already, and a clone has its source's.
    if (xfs) options.data = AppendOption(options.data, "nouuid");
    const std::string no_replay = AppendOption(options.data, xfs ? "norecovery" : "noload");
    const char* const type = ToString(request.type);
    // All texts are made before the fork: the child may only make system calls.
    const auto mount = [&](int out) {
      const char* const device = request.device.c_str();
      const char* const target = request.target.c_str();
      const int error = MountOn(device, target, type, options.flags, options.data.c_str());
      // The journal is not empty and the device read-only, as of a snapshot: only then without replaying it.
      if (error != EROFS || !request.read_only) return error;
      if (const int again = MountOn(device, target, type, options.flags, no_replay.c_str())) return again;
      return ::write(out, &kNoReplay, 1) == 1 ? 0 : EIO;
    };
    // Not the flags themselves: they may be confidential, and this becomes an error.
    const std::string with =
        request.options.empty() ? "" : absl::StrCat(" with mount flags (", request.options.size(), ")");
    const std::string subject =
        absl::StrCat("mounting ", type, " of ", request.device, " at ", request.target, with);
    ASSIGN_OR_RETURN(const ChildAnswer sent, CallInChild({.subject = subject, .deadline = deadline}, mount));
    if (!sent.output.empty()) {
      LogWarn("filesystem",
              "mounted read-only without replaying the journal: the newest changes are not seen",
              {{"device", request.device}, {"target", request.target}});
    }
    return absl::OkStatus();
  }

  absl::Status Bind(const std::string& source, const std::string& target, bool read_only,
                    absl::Time deadline) override {
    RETURN_IF_ERROR(CheckTarget(target));
    const auto bind = [&](int) {
      const UniqueFd at = OpenTarget(target.c_str());
      if (!at) return errno;
      const UniqueFd tree(
          ::open_tree(AT_FDCWD, source.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW));
      if (!tree) return errno;
      // Made read-only before it is attached: a bind mount that becomes so only afterwards can be written to
      // in between, by a process that already waits in the directory.
      struct mount_attr attributes = {};
      attributes.attr_set = MOUNT_ATTR_RDONLY;
      if (read_only && ::mount_setattr(tree.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0)
        return errno;
      const unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
      return ::move_mount(tree.get(), "", at.get(), "", flags) == 0 ? 0 : errno;
    };
    ChildCall call = {.subject = absl::StrCat("bind mount of ", source, " at ", target),
                      .deadline = deadline};
    return CallInChild(std::move(call), bind).status();
  }

  absl::Status Unmount(const std::string& target, bool lazy, absl::Time deadline) override {
    const auto unmount = [&](int out) {
      for (int attempt = 0; attempt < kUnmountAttempts; ++attempt) {
        if (attempt > 0) ::usleep(kUnmountPause);
        if (::umount2(target.c_str(), UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0) return 0;
        // A repeated unmount finds this: what was asked for is so.
        if (errno == EINVAL || errno == ENOENT) return 0;  // nothing is mounted there
        if (errno != EBUSY) return errno;
      }
      return ::write(out, &kBusy, 1) == 1 ? 0 : EIO;
    };
    ChildCall call = {.subject = absl::StrCat("unmounting ", target), .deadline = deadline};
    ASSIGN_OR_RETURN(const ChildAnswer sent, CallInChild(std::move(call), unmount));
    if (sent.output.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "unmounting ", target, ": in use; end the programs that have files open there, then try again"));
  }

  // syncfs(2) reports errors since Linux 5.8, also those of write-backs before it was called.
  absl::Status WriteBack(const std::string& target, absl::Time deadline) override {
    const auto write_back = [&](int out) {
      const UniqueFd at(::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      const int error = at && ::syncfs(at.get()) == 0 ? 0 : errno;  // one that shut down may not even open
      if (!TellsOfLoss(error)) return error;
      return ::write(out, &error, sizeof error) == sizeof error ? 0 : EIO;
    };
    ChildCall call = {.subject = absl::StrCat("writing back ", target), .deadline = deadline};
    ASSIGN_OR_RETURN(const ChildAnswer sent, CallInChild(std::move(call), write_back));
    if (sent.output.empty()) return absl::OkStatus();
    int error = 0;
    std::memcpy(&error, sent.output.data(), std::min(sizeof error, sent.output.size()));
    return absl::DataLossError(
        absl::StrCat("writing back the file system at ", target, ": ", std::strerror(error)));
  }

  absl::StatusOr<std::vector<Mount>> Mounts() override { return ReadMounts("/proc/self/mountinfo"); }

  absl::Status SetReadOnly(const std::string& device, bool read_only) override {
    const UniqueFd opened(::open(device.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const int value = read_only ? 1 : 0;
    if (opened && ::ioctl(opened.get(), BLKROSET, &value) == 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno,
                               absl::StrCat(read_only ? "closing " : "opening ", device, " to writes"));
  }

  absl::StatusOr<dev_t> NumberOf(const std::string& device) override {
    struct stat found = {};
    if (::stat(device.c_str(), &found) == 0 && S_ISBLK(found.st_mode)) return found.st_rdev;
    return absl::NotFoundError(absl::StrCat("there is no block device ", device));
  }
};

}  // namespace

absl::StatusOr<std::vector<Mount>> ReadMounts(const char* table_file) {
  const std::unique_ptr<libmnt_table, decltype(&::mnt_unref_table)> table(
      ::mnt_new_table_from_file(table_file), &::mnt_unref_table);
  const std::unique_ptr<libmnt_iter, decltype(&::mnt_free_iter)> each(::mnt_new_iter(MNT_ITER_FORWARD),
                                                                      &::mnt_free_iter);
  if (table == nullptr || each == nullptr)
    return absl::InternalError("the kernel's table of mounts cannot be read");
  std::vector<Mount> mounts;
  libmnt_fs* entry = nullptr;
  while (::mnt_table_next_fs(table.get(), each.get(), &entry) == 0) {
    if (std::optional<Mount> mount = ReadEntry(entry)) mounts.push_back(*std::move(mount));
  }
  return mounts;
}

std::unique_ptr<Mounter> MakeLinuxMounter() { return std::make_unique<LinuxMounter>(); }

}  // namespace lunkeeper
