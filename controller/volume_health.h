#pragma once
// What is wrong with volumes, as their arrays tell it. One checker is for one call: it asks each array for
// its free space once. Not thread-safe. The arrays outlive it.

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "csi/v1/csi.pb.h"
#include "devices/array/arrays.h"

namespace lunkeeper {

class HealthChecker {
 public:
  explicit HealthChecker(Arrays& arrays) : arrays_(arrays) {}

  // Of one volume; also when its array does not answer. NOT_FOUND: there is no such volume.
  absl::StatusOr<csi::v1::VolumeHealth> CheckVolume(const VolumeId& id);
  // Of volumes that are not well alone: at most `limit` (0: as many as the array likes) from `token`, one of
  // `volumes`. Fails as ListVolumes does.
  absl::StatusOr<Page<csi::v1::VolumeHealth>> ListProblems(VolumeStore& volumes, std::string token,
                                                           size_t limit);

 private:
  csi::v1::VolumeHealth CheckListed(const Volume& volume);
  std::optional<uint64_t> FreeBytes(const std::string& array_name);

  Arrays& arrays_;
  std::map<std::string, std::optional<uint64_t>> free_bytes_;  // by the array's name
};

}  // namespace lunkeeper
