#include "devices/array/tgt/cache_id.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

constexpr size_t kDigits = 16;

struct Memory {
  std::string boot, mount, id;
  friend bool operator==(const Memory&, const Memory&) = default;
};

absl::StatusOr<std::string> ReadBootId(const std::string& path) {
  std::ifstream file(path);
  std::string line, digits;
  std::getline(file, line);
  for (const char c : line) {
    if (std::isxdigit(static_cast<unsigned char>(c)) != 0 && digits.size() < kDigits) digits.push_back(c);
  }
  if (digits.size() == kDigits) return digits;
  return absl::FailedPreconditionError(absl::StrCat("open array: ", path, " holds no boot id"));
}

// As lower-case digits in groups of 8-4-4-4-12.
std::string UuidText(const uint8_t* bytes) {
  const std::string digits = absl::BytesToHexString(std::string(reinterpret_cast<const char*>(bytes), 16));
  return absl::StrCat(digits.substr(0, 8), "-", digits.substr(8, 4), "-", digits.substr(12, 4), "-",
                      digits.substr(16, 4), "-", digits.substr(20));
}

// Where the kernel may have an object for the super block: sysfs has one for each mounted XFS and ext4 by its
// device's name, and for each btrfs by its UUID.
std::vector<std::string> SuperBlockObjects(const std::string& pool) {
  struct stat folder {};
  const UniqueFd fd(::open(pool.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fstat(fd.get(), &folder) != 0) return {};
  btrfs_ioctl_fs_info_args btrfs{};
  if (::ioctl(fd.get(), BTRFS_IOC_FS_INFO, &btrfs) == 0)
    return {absl::StrCat("/sys/fs/btrfs/", UuidText(btrfs.fsid))};
  std::error_code error;
  const std::string device =
      std::filesystem::read_symlink(
          absl::StrCat("/sys/dev/block/", major(folder.st_dev), ":", minor(folder.st_dev)), error)
          .filename();
  if (error) return {};
  return {absl::StrCat("/sys/fs/xfs/", device), absl::StrCat("/sys/fs/ext4/", device)};
}

// Without blanks. "-": nothing identifies it.
std::string DescribeMount(const std::string& pool) {
  for (const std::string& object : SuperBlockObjects(pool)) {
    struct stat found {};
    if (::stat(object.c_str(), &found) == 0) return absl::StrCat(object, ":", found.st_ino);
  }
  return "-";
}

void Remember(const std::string& path, const Memory& memory) {
  const std::string text = absl::StrCat(memory.boot, " ", memory.mount, " ", memory.id, "\n");
  const std::string unfinished = absl::StrCat(path, ".new");
  const UniqueFd fd(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(fd.get()) == 0 && std::rename(unfinished.c_str(), path.c_str()) == 0)
    return;
  LogError("array", "the pool's mount is not remembered: when it is mounted anew, nobody may notice",
           {{"file", path}, {"error", std::strerror(errno)}});
}

}  // namespace

absl::StatusOr<std::string> ReadCacheId(const CacheIdPaths& paths) {
  ASSIGN_OR_RETURN(const std::string boot, ReadBootId(paths.boot_id));
  if (paths.memory.empty()) return boot;
  Memory last;
  // A file that is missing or cut short leaves empty texts, which are those of another boot.
  std::ifstream(paths.memory) >> last.boot >> last.mount >> last.id;
  Memory now = {boot, DescribeMount(paths.pool), boot};
  if (last.boot == boot && last.id.size() == kDigits) {
    // Where one of the two says nothing, nobody can know of a new mount: the id stays.
    const bool same = last.mount == now.mount || last.mount == "-" || now.mount == "-";
    now.id = same ? last.id : absl::BytesToHexString(HmacSha256(boot, now.mount).substr(0, kDigits / 2));
    if (!same)
      LogWarn("array",
              "the pool was mounted anew since this host has booted: writes that were not flushed are lost",
              {{"pool", paths.pool}});
    if (now.mount == "-") now.mount = last.mount;
  }
  // Also an id that is not remembered is the same at the next start: it follows from the boot and the mount.
  if (now != last) Remember(paths.memory, now);
  return now.id;
}

}  // namespace lunkeeper
