#include "devices/filesystem/filesystem.h"

namespace lunkeeper {

// The names of mount(8) and of CSI's fs_type.
const char* ToString(FilesystemType type) { return type == FilesystemType::kExt4 ? "ext4" : "xfs"; }

std::optional<FilesystemType> ParseFilesystemType(const std::string& name) {
  for (const FilesystemType type : {FilesystemType::kExt4, FilesystemType::kXfs}) {
    if (name == ToString(type)) return type;
  }
  return std::nullopt;
}

}  // namespace lunkeeper
