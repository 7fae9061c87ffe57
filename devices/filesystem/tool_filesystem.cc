// The tools decide by themselves what is dangerous: none of them is ever given a force flag, so that a
// mistake of ours ends in their refusal. What they print comes back in the error text.
//
// Make: mark -> tool -> clear the mark (device_image.cc says why). Killed between any two steps, a repeated
// Make goes on. Repair: `e2fsck -p`, which corrects only what needs no decision; XFS replays its log at each
// mount.

#include "devices/filesystem/tool_filesystem.h"

#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/child.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "base/subprocess.h"
#include "devices/filesystem/device_image.h"

namespace lunkeeper {
namespace {

// Discarding is left out: the device is blank, and it would take the mark of an unfinished Make with it.
std::vector<std::string> MakeCommand(const std::string& device, FilesystemType type) {
  // ext4: no blocks are reserved for root ("-m 0"), since a pod's data should be able to fill its volume.
  if (type == FilesystemType::kXfs) return {"mkfs.xfs", "-q", "-K", device};
  return {"mke2fs", "-q", "-t", "ext4", "-m", "0", "-E", "nodiscard", device};
}

absl::Status RunTool(const std::vector<std::string>& argv, absl::Time deadline) {
  ASSIGN_OR_RETURN(const CommandResult result, RunCommand(argv, deadline));
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(argv[0], " on ", argv.back(), " failed: ", result.output));
}

// e2fsck(8): bit 0 and 1, errors were corrected; bit 2, some were not.
absl::Status RunExt4Check(const std::vector<std::string>& argv, absl::Time deadline) {
  ASSIGN_OR_RETURN(const CommandResult result, RunCommand(argv, deadline));
  if (result.exit_code <= 3) return absl::OkStatus();  // 1 and 2 also want a reboot, for a mounted root only
  if (result.exit_code & 4) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the ext4 file system on ", argv.back(),
        " has errors that need a person's decision; attach it as a block volume and run e2fsck on it: ",
        result.output));
  }
  return absl::InternalError(absl::StrCat("e2fsck on ", argv.back(), " failed: ", result.output));
}

class ToolFilesystem final : public Filesystem {
 public:
  absl::StatusOr<FilesystemProbe> Probe(const std::string& device, absl::Time deadline) override {
    ASSIGN_OR_RETURN(const DeviceImage image, ReadDeviceImage(device, deadline));
    return ClassifyImage(image);
  }

  absl::Status Make(const std::string& device, FilesystemType type, absl::Time deadline) override {
    ASSIGN_OR_RETURN(const FilesystemProbe found, Probe(device, deadline));
    if (found.content != Content::kBlank) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", device, " holds ", found.description, " and is not formatted"));
    }
    RETURN_IF_ERROR(MarkUnfinished(device, deadline));
    FAIL_POINT("filesystem.make.marked");
    RETURN_IF_ERROR(RunTool(MakeCommand(device, type), deadline));
    FAIL_POINT("filesystem.make.made");
    RETURN_IF_ERROR(ClearUnfinished(device, deadline));
    FAIL_POINT("filesystem.make.finished");
    return absl::OkStatus();
  }

  absl::Status Check(const std::string& device, FilesystemType type, absl::Time deadline) override {
    if (type == FilesystemType::kXfs) return absl::OkStatus();
    return RunExt4Check({"e2fsck", "-p", device}, deadline);
  }

  absl::Status GrowUnmounted(const std::string& device, FilesystemType type, absl::Time deadline) override {
    if (type == FilesystemType::kXfs) return absl::OkStatus();
    RETURN_IF_ERROR(RunExt4Check({"e2fsck", "-f", "-p", device}, deadline));  // resize2fs insists on it
    FAIL_POINT("filesystem.grow.checked");
    return RunTool({"resize2fs", device}, deadline);
  }

  absl::Status GrowMounted(const std::string& device, const std::string& mount_point, FilesystemType type,
                           absl::Time deadline) override {
    // Asked of the superblock first: on a device that has not grown, the tools would still take a second
    // each.
    ASSIGN_OR_RETURN(const bool fills, FillsDevice(device, type, deadline));
    if (fills) return absl::OkStatus();
    if (type == FilesystemType::kXfs) return RunTool({"xfs_growfs", "-d", mount_point}, deadline);
    ASSIGN_OR_RETURN(const CommandResult result, RunCommand({"resize2fs", device}, deadline));
    if (result.exit_code == 0) return absl::OkStatus();
    // resize2fs has one exit code for all failures, and its texts come in the C locale (RunCommand). Read
    // here only to choose the words of the error, and which status of a failure it is.
    if (result.output.find("Permission denied") != std::string::npos) {
      return absl::FailedPreconditionError(
          absl::StrCat("the kernel does not let this process grow the mounted ext4 file system on ", device,
                       " (Permission denied: CAP_SYS_RESOURCE is missing); unstage the volume and stage it "
                       "again, which grows it"));
    }
    return absl::InternalError(absl::StrCat("resize2fs on ", device, " failed: ", result.output));
  }

  absl::StatusOr<Usage> UsageOf(const std::string& path, absl::Time deadline) override {
    const auto ask = [&path](int out) {
      struct statfs found = {};
      if (::statfs(path.c_str(), &found) != 0) return errno;
      return ::write(out, &found, sizeof found) == sizeof found ? 0 : EIO;
    };
    ChildCall call = {.subject = absl::StrCat("statistics of ", path), .deadline = deadline};
    ASSIGN_OR_RETURN(const ChildAnswer sent, CallInChild(std::move(call), ask));
    struct statfs found = {};
    if (sent.output.size() != sizeof found)
      return absl::InternalError(absl::StrCat("statistics of ", path, ": no answer"));
    std::memcpy(&found, sent.output.data(), sizeof found);
    const uint64_t block = static_cast<uint64_t>(found.f_frsize);
    return Usage{.total_bytes = found.f_blocks * block,
                 .available_bytes = found.f_bavail * block,
                 .used_bytes = (found.f_blocks - found.f_bfree) * block,
                 .total_inodes = found.f_files,
                 .free_inodes = found.f_ffree,
                 .used_inodes = found.f_files - found.f_ffree};
  }
};

}  // namespace

std::unique_ptr<Filesystem> MakeToolFilesystem() { return std::make_unique<ToolFilesystem>(); }

}  // namespace lunkeeper
