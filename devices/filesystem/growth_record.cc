#include "devices/filesystem/growth_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "devices/filesystem/device_image.h"
#include "devices/filesystem/superblock.h"

namespace lunkeeper {
namespace {

// "@" ends the volume's name, so that no record of v1 is taken for one of v10.
std::string PrefixOf(const std::string& volume) {
  std::string name = volume;
  std::replace(name.begin(), name.end(), '/', '_');
  return absl::StrCat(name, "@");
}

std::vector<std::string> ListRecords(const std::string& folder, const std::string& volume) {
  std::vector<std::string> found;
  std::error_code none;  // no folder, no records
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (absl::StartsWith(entry.path().filename().string(), PrefixOf(volume))) found.push_back(entry.path());
  }
  return found;
}

// Also durable in its folder.
absl::Status MakeDurableFile(const std::string& folder, const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const UniqueFd parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file || !parent || ::fsync(file.get()) != 0 || ::fsync(parent.get()) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("recording a growth in ", path));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> GrowthRecord::PathFor(const std::string& device, const std::string& volume,
                                                  absl::Time deadline) {
  ASSIGN_OR_RETURN(const DeviceHead head, ReadDeviceHead(device, deadline));
  return absl::StrCat(folder_, "/", PrefixOf(volume), Ext4UseStamp(head.bytes).value_or("none"));
}

absl::Status GrowthRecord::WriteRecord(const std::string& device, const std::string& volume,
                                       absl::Time deadline) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return absl::InternalError(absl::StrCat("making the folder ", folder_, ": ", error.message()));
  RemoveRecords(volume);
  ASSIGN_OR_RETURN(const std::string path, PathFor(device, volume, deadline));
  return MakeDurableFile(folder_, path);
}

absl::StatusOr<bool> GrowthRecord::HasRecord(const std::string& device, const std::string& volume,
                                             absl::Time deadline) {
  const std::vector<std::string> records = ListRecords(folder_, volume);
  if (records.empty()) return false;
  ASSIGN_OR_RETURN(const std::string path, PathFor(device, volume, deadline));
  if (std::find(records.begin(), records.end(), path) != records.end()) return true;
  LogInfo("filesystem", "the file system was used since its growth was cut short",
          {{"volume", volume}, {"device", device}});
  RemoveRecords(volume);
  return false;
}

void GrowthRecord::RemoveRecords(const std::string& volume) {
  std::error_code ignored;
  for (const std::string& record : ListRecords(folder_, volume)) std::filesystem::remove(record, ignored);
}

}  // namespace lunkeeper
