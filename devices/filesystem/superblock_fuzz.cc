// Any first bytes of a device.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "devices/filesystem/superblock.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lunkeeper;
  const std::string head(reinterpret_cast<const char*>(data), size);
  for (const FilesystemType type : {FilesystemType::kExt4, FilesystemType::kXfs}) {
    const std::optional<uint64_t> bytes = FilesystemBytes(type, head);
    if (bytes && (*bytes == 0 || *bytes > INT64_MAX)) std::abort();
  }
  return 0;
}
