#pragma once
// Questions to the kernel's mount table. Pure; thread-safe.

#include <string>
#include <vector>

#include "devices/filesystem/mounter.h"

namespace lunkeeper {

// The mount that one sees at `target`; null: none. Lives as long as `mounts`.
inline const Mount* TopMountAt(const std::vector<Mount>& mounts, const std::string& target) {
  for (auto mount = mounts.rbegin(); mount != mounts.rend(); ++mount) {
    if (mount->target == target) return &*mount;
  }
  return nullptr;
}

}  // namespace lunkeeper
