// Who shows an id, from which boot and mount, is a line in two places. The host's memory outlives a pool that
// fails. The pool's own note, `cache_id`, goes with it to another host, and is renamed when all is on the
// disk: only a note with that name is believed on another mount, and it is gone before anything is written
// there.
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
constexpr char kNote[] = "/cache_id", kFlushedNote[] = "/cache_id.flushed";

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

// A file that is missing or cut short leaves empty texts, which are those of another boot.
Memory ReadMemory(const std::string& path) {
  Memory read;
  std::ifstream(path) >> read.boot >> read.mount >> read.id;
  return read.id.size() == kDigits ? read : Memory{};
}

// False, with a line in the log: it is not remembered.
bool Remember(const std::string& path, const Memory& memory, const char* what) {
  const std::string text = absl::StrCat(memory.boot, " ", memory.mount, " ", memory.id, "\n");
  const std::string unfinished = absl::StrCat(path, ".new");
  const UniqueFd fd(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(fd.get()) == 0 && std::rename(unfinished.c_str(), path.c_str()) == 0)
    return true;
  LogError("array", what, {{"file", path}, {"error", std::strerror(errno)}});
  return false;
}

std::string DeriveId(const Memory& from) {
  return absl::BytesToHexString(HmacSha256(from.boot, from.mount).substr(0, kDigits / 2));
}

// The pool was not flushed for this mount: `last` is the host's memory, `note` the pool's.
Memory NextMemory(const Memory& last, const Memory& note, const Memory& first) {
  Memory now = first;
  if (last.boot == now.boot) {
    // Where one of the two says nothing, nobody can know of a new mount: the id stays.
    const bool same = last.mount == now.mount || last.mount == "-" || now.mount == "-";
    now.id = same ? last.id : DeriveId(now);
    if (!same)
      LogWarn("array",
              "the pool was mounted anew since this host has booted: writes that were not flushed are lost");
    if (now.mount == "-") now.mount = last.mount;
  }
  // It went to another host with the id of this boot, and has come back: what that host had is lost.
  if (now.id == note.id && note.boot != now.boot) now.id = DeriveId(now);
  return now;
}

absl::Status RemoveNote(const std::string& pool, const std::string& note) {
  const UniqueFd folder(::open(pool.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if ((::unlink(note.c_str()) == 0 || errno == ENOENT) && folder && ::fsync(folder.get()) == 0)
    return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("open array: remove ", note));
}

}  // namespace

absl::StatusOr<std::string> ReadCacheId(const CacheIdPaths& paths) {
  const std::string note_path = paths.pool + kNote, flushed_path = paths.pool + kFlushedNote;
  ASSIGN_OR_RETURN(const std::string boot, ReadBootId(paths.boot_id));
  Memory now = {boot, DescribeMount(paths.pool), boot};
  const Memory note = ReadMemory(note_path), flushed = ReadMemory(flushed_path);
  if (!paths.memory.empty()) {
    const Memory last = ReadMemory(paths.memory);
    if (flushed.id.empty())
      now = NextMemory(last, note, now);
    else
      now.id = flushed.id;
    // Also an id that is not remembered is the same at the next start: it follows from the boot and the
    // mount.
    const bool remembered =
        now == last || Remember(paths.memory, now,
                                "the pool's mount is not remembered: when it is mounted anew, nobody may "
                                "notice");
    // A host that forgets may show the id again: it must not go to another one.
    if (remembered && now != note)
      Remember(note_path, now, "after a move of the pool, devices with unflushed writes will fail");
  }
  RETURN_IF_ERROR(RemoveNote(paths.pool, flushed_path));
  return now.id;
}

absl::Status FlushPool(const CacheIdPaths& paths) {
  const std::string note_path = paths.pool + kNote;
  const UniqueFd folder(::open(paths.pool.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::syncfs(folder.get()) != 0)
    return absl::ErrnoToStatus(
        errno, absl::StrCat("write ", paths.pool, " back to its disk: what was not flushed may be lost"));
  ASSIGN_OR_RETURN(const std::string boot, ReadBootId(paths.boot_id));
  const Memory note = ReadMemory(note_path);
  const std::string mount = DescribeMount(paths.pool);
  // Of another mount: its cache may have been lost.
  if (mount == "-" || note.boot != boot || note.mount != mount) return absl::OkStatus();
  if (std::rename(note_path.c_str(), (paths.pool + kFlushedNote).c_str()) == 0 && ::fsync(folder.get()) == 0)
    return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("rename ", note_path));
}

}  // namespace lunkeeper
