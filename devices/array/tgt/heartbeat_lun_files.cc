#include "devices/array/tgt/heartbeat_lun_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

constexpr uint64_t kHeartbeatLunBytes = 64 << 10;

}  // namespace

std::string HeartbeatLunFiles::PathOf(Generation generation) const {
  return absl::StrCat(directory_, "/", generation);
}

absl::StatusOr<UniqueFd> HeartbeatLunFiles::OpenLunFile(Generation generation) const {
  const std::string path = PathOf(generation);
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0 || static_cast<uint64_t>(file.st_size) != kHeartbeatLunBytes) {
    RETURN_IF_ERROR(WriteNewFile(
        path, [&](int fd) { return SetSize(fd, path, kHeartbeatLunBytes, Provisioning::kThick); }));
    // One of another size is replaced: no heartbeat in it can be read.
    if (::rename((path + kNewSuffix).c_str(), path.c_str()) != 0)
      return FileError("rename", path + kNewSuffix, errno);
    RETURN_IF_ERROR(SyncDirectoryOf(path));
  }
  return OpenFile(path, O_RDWR);
}

absl::Status HeartbeatLunFiles::RemoveLunFile(Generation generation) const {
  const std::string path = PathOf(generation);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return FileError("remove", path, errno);
  return absl::OkStatus();
}

void HeartbeatLunFiles::RemoveOthers(const std::set<Generation>& known) const {
  std::set<std::string> names;
  for (const Generation generation : known) names.insert(absl::StrCat(generation));
  std::error_code error;
  for (std::filesystem::directory_iterator file(directory_, error), end; !error && file != end;
       file.increment(error)) {
    if (!names.contains(file->path().filename())) ::unlink(file->path().c_str());
  }
}

}  // namespace lunkeeper
