#pragma once
// What is on a block device, and the file systems Lunkeeper makes there: ext4 and XFS, by their own tools.
// Thread-safe. One caller at a time works on a device (the Node service's lock for each volume). Every call
// may be repeated after a crash at any line and then succeeds; a `Make` that was cut short is recognised and
// done again. Every call ends at its deadline, also on a device that answers nothing: the work is done in
// child processes. Failure, beyond what each call says:
//   DEADLINE_EXCEEDED    the device is too slow, or dead
//   FAILED_PRECONDITION  the device's content forbids it; the message says what is there and what to do
//   INTERNAL             a tool failed; the message ends with its output
//   ABORTED              a tool that writes is still at work, and the device in use. It is never killed; the
//                        repeated call finds it, or its result (tool_runner.h)

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lunkeeper {

enum class FilesystemType { kExt4, kXfs };

const char* ToString(FilesystemType type);
// "ext4" and "xfs"; nullopt for anything else.
std::optional<FilesystemType> ParseFilesystemType(const std::string& name);

enum class Content {
  kBlank,  // provably: libblkid knows nothing of it, and its first and last MiB are zero; or a Make was cut
           // short
  kFilesystem,  // one of ours
  kForeign,     // somebody's data: never touched
};

struct FilesystemProbe {
  Content content = Content::kForeign;
  FilesystemType type = FilesystemType::kExt4;  // with kFilesystem
  std::string uuid{};                           // with kFilesystem
  uint64_t filesystem_bytes = 0;                // with kFilesystem: the size it was made or grown to
  uint64_t device_bytes = 0;
  std::string description{};  // in words: "LVM2_member", "a gpt partition table", "data that is not known"
};

// An unmounted file system, to be made or changed by tools that write to it.
struct UnmountedFilesystem {
  std::string device;
  FilesystemType type = FilesystemType::kExt4;
  std::string volume;  // its id: it outlives the device, as the record of its growth must
};

struct Usage {
  uint64_t total_bytes = 0, available_bytes = 0, used_bytes = 0;
  uint64_t total_inodes = 0, free_inodes = 0, used_inodes = 0;
};

class Filesystem {
 public:
  virtual ~Filesystem() = default;

  // Before somebody uses the device itself: until no tool that an earlier call of this process has left is at
  // work on it. What an unfinished Make has left is then somebody's data. ABORTED: see above.
  virtual absl::Status PrepareRaw(const std::string& device, absl::Time deadline) = 0;
  // Reads the device only. An unreadable device is an error, never blank.
  virtual absl::StatusOr<FilesystemProbe> Probe(const std::string& device, absl::Time deadline) = 0;
  // FAILED_PRECONDITION unless the device is blank: this call checks that again, and no tool is given a
  // force flag.
  virtual absl::Status Make(const UnmountedFilesystem& filesystem, absl::Time deadline) = 0;
  // Repairs an unmounted file system where it asks for that, and only what needs no decision. Before that it
  // repairs what a GrowUnmounted of this volume left when it was killed on this node, or continues one that a
  // deadline cut short. Nothing for XFS, which replays its log when it is mounted, nor for what this kernel
  // has mounted, if only in another mount namespace: a new mount joins that. FAILED_PRECONDITION: it needs a
  // decision. ABORTED: see above.
  virtual absl::Status Check(const UnmountedFilesystem& filesystem, absl::Time deadline) = 0;
  // Makes an unmounted ext4 as large as its device, where the kernel refuses GrowMounted. Does nothing where
  // the gain is not worth the full check that this needs, nor for XFS, which grows only mounted, nor for what
  // another mount namespace has mounted: it grows at a later stage. ABORTED: see above.
  virtual absl::Status GrowUnmounted(const UnmountedFilesystem& filesystem, absl::Time deadline) = 0;
  // The same for a file system mounted on `mount_point`; journalled, and so safe to kill.
  // FAILED_PRECONDITION: the kernel refuses. For ext4 it demands CAP_SYS_RESOURCE, and a file system without
  // errors.
  virtual absl::Status GrowMounted(const std::string& device, const std::string& mount_point,
                                   FilesystemType type, absl::Time deadline) = 0;
  // Of the file system that `path` is on. The error of any access, for one that has shut itself down.
  virtual absl::StatusOr<Usage> UsageOf(const std::string& path, absl::Time deadline) = 0;
};

}  // namespace lunkeeper
