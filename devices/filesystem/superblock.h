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

// What tells an ext4 that nobody has mounted or checked since from one that somebody has: its UUID, the times
// of its last mount and check, and its number of mounts, in hex. resize2fs changes none of them. nullopt:
// there is no ext4.
std::optional<std::string> Ext4UseStamp(const std::string& head);

// Whether an ext4 says of itself that it has errors (EXT4_ERROR_FS), as resize2fs makes it say until it is
// done.
bool Ext4HasErrors(const std::string& head);

}  // namespace lunkeeper
