#include "devices/filesystem/mount_options.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lunkeeper {
namespace {

constexpr size_t kMostOptionBytes = 4096;  // CSI: mount_flags in all; also a page, the kernel's limit

// A name alone, or with the '=' that its value follows.
constexpr const char* kRefused[] = {
    // What is mounted, and where.
    "bind",
    "rbind",
    "move",
    "remount",
    "loop",
    "loop=",
    "offset=",
    "sizelimit=",
    "sb=",
    // Other devices: a pod's author must not have the kernel open a device of the host.
    "logdev=",
    "rtdev=",
    "journal_dev=",
    "journal_path=",
    // Other programs, run as root.
    "helper=",
    "uhelper=",
    "encryption=",
    // Propagation, which would let mounts out of or into the pod.
    "shared",
    "rshared",
    "slave",
    "rslave",
    "private",
    "rprivate",
    "unbindable",
    "runbindable",
    // What the driver decides itself.
    "noload",
    "norecovery",
    "nouuid",
    "user",
    "users",
    "user=",
    "owner",
    "group",
    // Acknowledged writes would be lost with the power.
    "barrier=0",
    "nobarrier",
};

bool IsRefused(absl::string_view option) {
  if (absl::StartsWithIgnoreCase(option, "x-") || absl::StartsWith(option, "verity.")) return true;
  return std::any_of(std::begin(kRefused), std::end(kRefused), [option](absl::string_view refused) {
    return absl::EndsWith(refused, "=") ? absl::StartsWith(option, refused) : option == refused;
  });
}

}  // namespace

absl::Status CheckMountOptions(const std::vector<std::string>& options) {
  size_t bytes = 0;
  for (const std::string& flag : options) {
    bytes += flag.size() + 1;
    if (bytes > kMostOptionBytes)
      return absl::InvalidArgumentError("mount_flags: are longer than 4096 bytes");
    const bool plain = std::all_of(flag.begin(), flag.end(),
                                   [](char c) { return absl::ascii_isgraph(c) && c != '"' && c != '\\'; });
    if (flag.empty() || !plain) {
      return absl::InvalidArgumentError(
          "mount_flags: an option is empty or has characters that no option has");
    }
    for (const absl::string_view option : absl::StrSplit(flag, ',')) {
      if (!IsRefused(option)) continue;
      return absl::InvalidArgumentError(absl::StrCat("mount_flags: the option \"", option.substr(0, 64),
                                                     "\" is not for users to set; leave it out"));
    }
  }
  return absl::OkStatus();
}

}  // namespace lunkeeper
