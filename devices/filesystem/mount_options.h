#pragma once
// Which mount options a user may set: StorageClasses and volumes name them, and the node mounts as root. An
// option that is not known to be harmless is refused, since the kernel reads one in many ways ("barrier=00")
// and learns new ones. Pure functions.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "devices/filesystem/filesystem.h"

namespace lunkeeper {

// INVALID_ARGUMENT, with the place in the list and never the option (CSI: mount flags may be confidential,
// and errors are seen by those who may not see them), for options that are not on the list. Not on it is what
// changes the thing that is mounted, or where or by whom, what switches off the protection of data, and what
// lets a file system stop the node. Whether the file system knows an option is the kernel's to say.
absl::Status CheckMountOptions(const std::vector<std::string>& options);

// Whether they ask for a read-only mount.
bool IsReadOnlyMount(const std::vector<std::string>& options);

// Whether they ask for an SELinux label.
bool AsksForLabel(const std::vector<std::string>& options);

// `options`, which CheckMountOptions has passed, behind the defaults, which they may change: a volume's
// content is written by pods, so nothing on it becomes another user or a device of the node (nosuid, nodev),
// and a damaged ext4 becomes read-only, whatever its superblock says.
std::string WithDefaultOptions(FilesystemType type, const std::vector<std::string>& options);

}  // namespace lunkeeper
