// Any bytes at all as the kernel's table of mounts: its paths and options are chosen by the users who mount.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/unique_fd.h"
#include "devices/filesystem/linux_mounter.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lunkeeper;
  const UniqueFd table(::memfd_create("mounts", MFD_CLOEXEC));
  if (!table || ::write(table.get(), data, size) != static_cast<ssize_t>(size)) std::abort();
  const std::string path = "/proc/self/fd/" + std::to_string(table.get());
  const auto mounts = ReadMounts(path.c_str());
  if (!mounts.ok()) return 0;
  for (const Mount& mount : *mounts) {
    if (mount.device == 0) std::abort();
  }
  return 0;
}
