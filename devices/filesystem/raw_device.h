#pragma once
// A device's size and bytes, for a child (base/child.h): system calls and plain memory only, so all of it may
// be called between fork and exit. The results are 0 or an errno.

#include <cstddef>
#include <cstdint>

namespace lunkeeper {

inline constexpr size_t kDeviceChunk = 64 * 1024;  // what is read or written at once
inline constexpr char kDeviceZeroes[kDeviceChunk] = {};

struct DeviceGeometry {
  uint64_t bytes = 0;
  uint32_t sector_bytes = 512;
};

// Also of a file.
int GetGeometry(int device, DeviceGeometry& geometry);
// An end before that is EIO.
int ReadFully(int from, char* buffer, size_t size, uint64_t at);
int WriteFully(int to, const char* buffer, size_t size, uint64_t at);

}  // namespace lunkeeper
