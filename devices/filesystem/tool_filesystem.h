#pragma once
// The Filesystem that works: libblkid, e2fsprogs and xfsprogs. Needs root, as the devices do.

#include <memory>

#include "devices/filesystem/filesystem.h"

namespace lunkeeper {

std::unique_ptr<Filesystem> MakeToolFilesystem();

}  // namespace lunkeeper
