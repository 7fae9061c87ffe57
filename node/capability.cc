// CSI's access modes say how many nodes may use a volume and how; an array knows three kinds of grants. The
// modes of one writing node become an exclusive grant, whatever the number of pods on it;
// SINGLE_NODE_SINGLE_WRITER (Kubernetes' ReadWriteOncePod) is then held on the node, by Publisher.
#include "node/capability.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/filesystem/mount_options.h"

namespace lunkeeper {
namespace {

using Mode = csi::v1::VolumeCapability::AccessMode;

absl::Status WrongCapability(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("volume_capability: ", what));
}

absl::Status ParseAccess(Mode::Mode mode, Capability& capability) {
  switch (mode) {
    case Mode::SINGLE_NODE_SINGLE_WRITER:
      // Falls through: for the array it is an exclusive grant like the others.
      capability.single_target = true;
      [[fallthrough]];
    case Mode::SINGLE_NODE_WRITER:
    case Mode::SINGLE_NODE_MULTI_WRITER:
      capability.access = Access::kExclusive;
      return absl::OkStatus();
    case Mode::SINGLE_NODE_READER_ONLY:
    case Mode::MULTI_NODE_READER_ONLY:
      capability.access = Access::kReadOnly;
      return absl::OkStatus();
    case Mode::MULTI_NODE_SINGLE_WRITER:
    case Mode::MULTI_NODE_MULTI_WRITER:
      capability.access = Access::kSharedWrite;
      return absl::OkStatus();
    default:
      return WrongCapability("access_mode is required");
  }
}

absl::Status ParseMount(const csi::v1::VolumeCapability::MountVolume& mount,
                        const std::map<std::string, std::string>& volume_context, Capability& capability) {
  if (capability.access == Access::kSharedWrite) {
    return absl::FailedPreconditionError(
        "volume_capability: ext4 and xfs cannot be written by many nodes; ask for a block volume, or for one "
        "node");
  }
  // Not offered among the capabilities, so no orchestrator should send it; ignoring it would leave files with
  // a wrong group.
  if (!mount.volume_mount_group().empty()) return WrongCapability("volume_mount_group is not supported");
  // The controller puts a StorageClass's fsType into the volume context; what a pod's volume asks for goes
  // first.
  const auto context = volume_context.find("fsType");
  const std::string& name =
      mount.fs_type().empty() && context != volume_context.end() ? context->second : mount.fs_type();
  capability.type = ParseFilesystemType(name);
  if (!name.empty() && !capability.type) {
    return WrongCapability(
        absl::StrCat("fs_type \"", name.substr(0, 64), "\" is not known; use ext4 or xfs"));
  }
  capability.mount_options.assign(mount.mount_flags().begin(), mount.mount_flags().end());
  return CheckMountOptions(capability.mount_options);
}

}  // namespace

absl::StatusOr<Capability> ParseCapability(const csi::v1::VolumeCapability& message,
                                           const std::map<std::string, std::string>& volume_context) {
  Capability capability;
  RETURN_IF_ERROR(ParseAccess(message.access_mode().mode(), capability));
  capability.block = message.has_block();
  if (message.has_mount()) {
    RETURN_IF_ERROR(ParseMount(message.mount(), volume_context, capability));
  } else if (!message.has_block()) {
    return WrongCapability("access_type is required: mount or block");
  }
  return capability;
}

}  // namespace lunkeeper
