#include "devices/filesystem/raw_device.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace lunkeeper {

int GetGeometry(int device, DeviceGeometry& geometry) {
  struct stat found = {};
  if (::fstat(device, &found) != 0) return errno;
  geometry = {static_cast<uint64_t>(found.st_size), 512};
  if (!S_ISBLK(found.st_mode)) return 0;
  int sector_bytes = 0;
  if (::ioctl(device, BLKGETSIZE64, &geometry.bytes) != 0) return errno;
  if (::ioctl(device, BLKSSZGET, &sector_bytes) != 0) return errno;
  geometry.sector_bytes = static_cast<uint32_t>(sector_bytes);
  return 0;
}

int ReadFully(int from, char* buffer, size_t size, uint64_t at) {
  for (size_t done = 0; done < size;) {
    const ssize_t got = ::pread(from, buffer + done, size - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0 ? EIO : errno;
    done += static_cast<size_t>(got);
  }
  return 0;
}

int WriteFully(int to, const char* buffer, size_t size, uint64_t at) {
  for (size_t done = 0; done < size;) {
    const ssize_t put = ::pwrite(to, buffer + done, size - done, static_cast<off_t>(at + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return put == 0 ? EIO : errno;
    done += static_cast<size_t>(put);
  }
  return 0;
}

}  // namespace lunkeeper
