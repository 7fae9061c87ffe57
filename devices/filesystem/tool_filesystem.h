#pragma once
// The real Filesystem (filesystem.h is the contract), by libblkid, e2fsprogs and xfsprogs. Needs root, as the
// devices do.

#include <memory>
#include <string>

#include "devices/filesystem/filesystem.h"

namespace lunkeeper {

// `growth_folder`: this node's, for growth_record.h; made when first needed.
std::unique_ptr<Filesystem> MakeToolFilesystem(const std::string& growth_folder);

}  // namespace lunkeeper
