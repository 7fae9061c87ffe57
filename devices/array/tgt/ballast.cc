// The file's size is the space that it has: it never has a hole.
#include "devices/array/tgt/ballast.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/units.h"

namespace lunkeeper {
namespace {

// Of a small pool at most 1/32.
constexpr uint64_t kWanted = 64 * kMiB;
constexpr uint64_t kSmallestStep = 64 << 10;

}  // namespace

Ballast::Ballast(std::string path, std::chrono::nanoseconds rest)
    : path_(std::move(path)),
      folder_(std::filesystem::path(path_).parent_path()),
      fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)),
      rest_(rest) {}

bool Ballast::ReleaseSpace() {
  const absl::MutexLock lock(&mu_);
  struct stat file {};
  if (!fd_ || ::fstat(fd_.get(), &file) != 0 || file.st_size == 0) return false;
  if (::ftruncate(fd_.get(), 0) != 0) return false;
  // A journal releases blocks for others only when it has stored that they are free.
  ::fsync(fd_.get());
  released_ = std::chrono::steady_clock::now();
  LogWarn("array", "the pool is full; its reserve is released: delete volumes or grow the pool",
          {{"file", path_}});
  return true;
}

void Ballast::ReserveSpace() {
  const absl::MutexLock lock(&mu_);
  if (released_ && std::chrono::steady_clock::now() < *released_ + rest_) return;
  struct stat file {};
  struct statvfs pool {};
  if (!fd_ || ::fstat(fd_.get(), &file) != 0 || ::statvfs(folder_.c_str(), &pool) != 0) return;
  const auto has = static_cast<uint64_t>(file.st_size);
  const uint64_t wanted = std::min<uint64_t>(kWanted, pool.f_blocks * pool.f_frsize / 32);
  if (has >= wanted) return;
  const uint64_t step = std::min<uint64_t>(wanted - has, pool.f_bavail * pool.f_frsize / 2);
  if (step < std::min(kSmallestStep, wanted - has)) return;
  if (::fallocate(fd_.get(), 0, file.st_size, static_cast<off_t>(step)) == 0) return;
  [[maybe_unused]] const int undone = ::ftruncate(fd_.get(), file.st_size);
}

}  // namespace lunkeeper
