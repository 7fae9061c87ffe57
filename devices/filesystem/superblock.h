#pragma once
// The size a file system believes to have, from the first bytes of its device. Pure; thread-safe; any bytes
// will do.

#include <cstdint>
#include <optional>
#include <string>

#include "devices/filesystem/filesystem.h"

namespace lunkeeper {

// How much of the device's beginning FilesystemBytes looks at.
inline constexpr size_t kSuperblockBytes = 2048;

// `head`: the first kSuperblockBytes of the device. nullopt: there is no sound superblock of that type in it.
// Layouts: ext4, Documentation/filesystems/ext4/super.rst; XFS, "XFS Algorithms & Data Structures", 13.1.
std::optional<uint64_t> FilesystemBytes(FilesystemType type, const std::string& head);

}  // namespace lunkeeper
