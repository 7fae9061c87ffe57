// The tools decide by themselves what is dangerous: they are given no force flags, so that a mistake of ours
// ends in their refusal. What they print comes back in the error text.
//
// A call that may outlast its deadline ends with ABORTED, its tool goes on, and the repeated call finds it:
//
//   Check: a tool at work? -- wait -->  a growth killed half-way? -- yes -->  e2fsck -f -y, forget the record
//                                         no: a whole check for a growth done? -- yes -->  GrowUnmounted
//                                               no:  e2fsck -p
//   GrowUnmounted:  e2fsck -f -p  -->  write the record  -->  resize2fs  -->  remove the record
//
// -y is given only where a record says that this node's own resize2fs has done the damage (growth_record.h).
//
// Make: mark -> tool -> clear the mark, or wipe what a failed tool left (unfinished_mark.cc says why). Killed
// between any two steps, a repeated Make goes on; one whose tool was still at work takes that tool's result.
// Repair: `e2fsck -p`, which corrects only what needs no decision; XFS replays its log at each mount.

#include "devices/filesystem/tool_filesystem.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/child.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/subprocess.h"
#include "base/unique_fd.h"
#include "devices/filesystem/device_image.h"
#include "devices/filesystem/device_users.h"
#include "devices/filesystem/growth_record.h"
#include "devices/filesystem/superblock.h"
#include "devices/filesystem/tool_runner.h"
#include "devices/filesystem/unfinished_mark.h"

namespace lunkeeper {
namespace {

// A smaller difference is the tool's rounding, and not worth a whole check of the file system.
constexpr uint64_t kWorthGrowing = 8 << 20;

using Words = std::vector<std::string>;

// Discarding is left out: the device is blank, and it would take the mark of an unfinished Make with it. The
// UUID is the mark's; empty: there is none.
Words MakeCommand(const std::string& device, FilesystemType type, const std::string& uuid) {
  // ext4: no blocks are reserved for root ("-m 0"), since a pod's data should be able to fill its volume.
  const bool xfs = type == FilesystemType::kXfs;
  Words command =
      xfs ? Words{"mkfs.xfs", "-q", "-K"} : Words{"mke2fs", "-q", "-t", "ext4", "-m", "0", "-E", "nodiscard"};
  if (!uuid.empty() && xfs) command.insert(command.end(), {"-m", "uuid=" + uuid});
  if (!uuid.empty() && !xfs) command.insert(command.end(), {"-U", uuid});
  command.push_back(device);
  return command;
}

absl::Status StatusOfTool(const Words& argv, const CommandResult& result) {
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(argv[0], " on ", argv.back(), " failed: ", result.output));
}

Words RepairCommand(const std::string& device) { return {"e2fsck", "-p", device}; }
// resize2fs insists on it.
Words WholeCheckCommand(const std::string& device) { return {"e2fsck", "-f", "-p", device}; }

// e2fsck(8): bit 0 and 1, errors were corrected; bit 2, some were not.
absl::Status StatusOfExt4Check(const std::string& device, const CommandResult& result) {
  if (result.exit_code <= 3) return absl::OkStatus();  // 1 and 2 also want a reboot, for a mounted root only
  if (result.exit_code < 128 && (result.exit_code & 4)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the ext4 file system on ", device,
        " has errors that need a person's decision; operations.md, \"A file system that needs repair\", says "
        "how to run e2fsck on a copy of it: ",
        result.output));
  }
  return absl::InternalError(absl::StrCat("e2fsck on ", device, " failed: ", result.output));
}

// Also where no mount table of ours shows it: a container that has copied this machine's mounts keeps them.
bool IsMountedAnywhere(const std::string& device) {
  std::error_code none;
  const std::string name = std::filesystem::path(device).filename();
  return std::filesystem::exists(absl::StrCat("/sys/fs/ext4/", name), none);
}

// In the child: what resize2fs does to a mounted ext4, with an errno to go by instead of a sentence.
int GrowMountedExt4(const char* device, const char* mount_point) {
  constexpr unsigned long kResizeFs = _IOW('f', 16, uint64_t);  // EXT4_IOC_RESIZE_FS, fs/ext4/ext4.h
  constexpr uint64_t kPage = 4096;
  const UniqueFd root(::open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd disk(::open(device, O_RDONLY | O_CLOEXEC));
  struct statfs found = {};
  uint64_t bytes = 0;
  if (!root || !disk || ::fstatfs(root.get(), &found) != 0 || ::ioctl(disk.get(), BLKGETSIZE64, &bytes) != 0)
    return errno;
  // The kernel reads its new end by whole pages, also where blocks are smaller.
  uint64_t blocks = bytes / kPage * kPage / static_cast<uint64_t>(found.f_bsize);
  return ::ioctl(root.get(), kResizeFs, &blocks) == 0 ? 0 : errno;
}

// Of a tool that failed.
void WipeRemains(const UnmountedFilesystem& filesystem, absl::Time deadline) {
  const absl::Status wiped = WipeUnfinished(filesystem.device, deadline);
  if (wiped.ok()) return;
  LogWarn("filesystem",
          "what a failed format left on a volume cannot be wiped now. The next format does that; but if the "
          "volume grows before one has succeeded, the remains pass for data: delete such a volume, if no pod "
          "has ever started with it",
          {{"volume", filesystem.volume},
           {"device", filesystem.device},
           {"error", std::string(wiped.message())}});
}

class ToolFilesystem final : public Filesystem {
 public:
  explicit ToolFilesystem(const std::string& growth_folder) : record_(growth_folder) {}

  absl::Status PrepareRaw(const std::string& device, absl::Time deadline) override {
    RETURN_IF_ERROR(tools_.AwaitTool(device, deadline));
    const absl::Status cleared = ClearUnfinished(device, deadline);
    // Nobody writes to one that is read-only.
    return absl::IsPermissionDenied(cleared) ? absl::OkStatus() : cleared;
  }

  absl::StatusOr<FilesystemProbe> Probe(const std::string& device, absl::Time deadline) override {
    RETURN_IF_ERROR(tools_.AwaitTool(device, deadline));
    ASSIGN_OR_RETURN(const DeviceImage image, ReadDeviceImage(device, deadline));
    return ClassifyImage(image);
  }

  absl::Status Make(const UnmountedFilesystem& filesystem, absl::Time deadline) override {
    const auto& [device, type, volume] = filesystem;
    RETURN_IF_ERROR(tools_.AwaitTool(device, deadline));
    ASSIGN_OR_RETURN(std::string uuid, ReadMark(device, deadline));
    const bool has_begun = tools_.HasTool(device, MakeCommand(device, type, uuid));
    // Before the look at it, since what an earlier process has left at work there may be writing.
    if (!has_begun) RETURN_IF_ERROR(AwaitUnused(device, deadline));
    ASSIGN_OR_RETURN(const FilesystemProbe found, Probe(device, deadline));
    if (found.content != Content::kBlank) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", device, " holds ", found.description, " and is not formatted"));
    }
    // What an earlier call began is not begun anew, and a mark would wipe what it has made.
    if (!has_begun) {
      ASSIGN_OR_RETURN(uuid, MarkUnfinished(device, deadline));
    }
    FAIL_POINT("filesystem.make.marked");
    const Words command = MakeCommand(device, type, uuid);
    ASSIGN_OR_RETURN(const CommandResult made, tools_.RunTool(device, command, deadline));
    if (made.exit_code != 0) WipeRemains(filesystem, deadline);
    RETURN_IF_ERROR(StatusOfTool(command, made));
    FAIL_POINT("filesystem.make.made");
    RETURN_IF_ERROR(ClearUnfinished(device, deadline));
    FAIL_POINT("filesystem.make.finished");
    return absl::OkStatus();
  }

  absl::Status Check(const UnmountedFilesystem& filesystem, absl::Time deadline) override {
    const auto& [device, type, volume] = filesystem;
    if (type == FilesystemType::kXfs || IsMountedAnywhere(device)) return absl::OkStatus();
    RETURN_IF_ERROR(tools_.AwaitTool(device, deadline));
    ASSIGN_OR_RETURN(const bool cut_short, IsGrowthCutShort(filesystem, deadline));
    if (cut_short) return RepairGrowth(filesystem, deadline);
    // Begun by a GrowUnmounted that ran out of time. A mount or another check would make it worthless.
    if (tools_.HasTool(device, WholeCheckCommand(device))) return GrowUnmounted(filesystem, deadline);
    return RunExt4Check(device, RepairCommand(device), deadline);
  }

  absl::Status GrowUnmounted(const UnmountedFilesystem& filesystem, absl::Time deadline) override {
    const auto& [device, type, volume] = filesystem;
    if (type == FilesystemType::kXfs || IsMountedAnywhere(device)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const FilesystemProbe found, Probe(device, deadline));
    if (found.device_bytes < found.filesystem_bytes + kWorthGrowing) return absl::OkStatus();
    RETURN_IF_ERROR(RunExt4Check(device, WholeCheckCommand(device), deadline));
    FAIL_POINT("filesystem.grow.checked");
    RETURN_IF_ERROR(record_.WriteRecord(device, volume, deadline));
    const Words command = {"resize2fs", device};
    ASSIGN_OR_RETURN(const CommandResult result, tools_.RunTool(device, command, deadline));
    RETURN_IF_ERROR(StatusOfTool(command, result));
    FAIL_POINT("filesystem.grow.grown");
    record_.RemoveRecords(volume);
    return absl::OkStatus();
  }

  absl::Status GrowMounted(const std::string& device, const std::string& mount_point, FilesystemType type,
                           absl::Time deadline) override {
    // Asked of the superblock first: on a device that has not grown, the tools would still take a second
    // each.
    ASSIGN_OR_RETURN(const bool fills, FillsDevice(device, type, deadline));
    if (fills) return absl::OkStatus();
    if (type == FilesystemType::kXfs) return GrowMountedXfs(mount_point, deadline);
    ChildCall call = {.subject = absl::StrCat("growing the mounted ext4 on ", device), .deadline = deadline};
    const auto grow = [&](int) { return GrowMountedExt4(device.c_str(), mount_point.c_str()); };
    const absl::Status status = CallInChild(std::move(call), grow).status();
    if (!absl::IsPermissionDenied(status)) return status;
    return absl::FailedPreconditionError(
        absl::StrCat("the kernel does not let this process grow the mounted ext4 file system on ", device,
                     " (CAP_SYS_RESOURCE is missing, or the file system has errors); unstage the volume and "
                     "stage it again, which grows it"));
  }

  absl::StatusOr<Usage> UsageOf(const std::string& path, absl::Time deadline) override {
    const auto ask = [&path](int out) {
      struct statfs found = {};
      struct stat root = {};
      // An XFS that has shut itself down still counts its blocks, and fails everything else. Its numbers are
      // of no use to anybody.
      if (::stat(path.c_str(), &root) != 0 || ::statfs(path.c_str(), &found) != 0) return errno;
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

 private:
  static absl::Status GrowMountedXfs(const std::string& mount_point, absl::Time deadline) {
    const Words command = {"xfs_growfs", "-d", mount_point};
    ASSIGN_OR_RETURN(const CommandResult result, RunCommand(command, deadline));
    return StatusOfTool(command, result);
  }

  absl::Status RunExt4Check(const std::string& device, const Words& argv, absl::Time deadline) {
    ASSIGN_OR_RETURN(const CommandResult result, tools_.RunTool(device, argv, deadline));
    return StatusOfExt4Check(device, result);
  }

  // A growth that was done, and whose caller was not there any more, loses its record.
  absl::StatusOr<bool> IsGrowthCutShort(const UnmountedFilesystem& filesystem, absl::Time deadline) {
    const auto& [device, type, volume] = filesystem;
    ASSIGN_OR_RETURN(const bool began, record_.HasRecord(device, volume, deadline));
    if (!began) return false;
    ASSIGN_OR_RETURN(const DeviceHead head, ReadDeviceHead(device, deadline));
    ASSIGN_OR_RETURN(const bool fills, FillsDevice(device, type, deadline));
    if (!fills || Ext4HasErrors(head.bytes)) return true;
    record_.RemoveRecords(volume);
    return false;
  }

  // Killed here, it is repeated: the check changes the use stamp only when it is done.
  absl::Status RepairGrowth(const UnmountedFilesystem& filesystem, absl::Time deadline) {
    const auto& [device, type, volume] = filesystem;
    LogWarn("filesystem", "repairs a file system whose growth was killed half-way",
            {{"volume", volume}, {"device", device}});
    RETURN_IF_ERROR(RunExt4Check(device, {"e2fsck", "-f", "-y", device}, deadline));
    record_.RemoveRecords(volume);
    return absl::OkStatus();
  }

  GrowthRecord record_;
  ToolRunner tools_;
};

}  // namespace

std::unique_ptr<Filesystem> MakeToolFilesystem(const std::string& growth_folder) {
  return std::make_unique<ToolFilesystem>(growth_folder);
}

}  // namespace lunkeeper
