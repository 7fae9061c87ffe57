#include "devices/array/tgt/thick_space.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Looked at first: of a file's holes fallocate keeps what it has filled when the rest does not fit, and so
// would leave no room for anybody.
absl::Status TakeSpace(const Volume& volume, const ImageStore& images, const PoolRoom& room) {
  const std::string path = images.VolumePath(volume.id);
  ASSIGN_OR_RETURN(const uint64_t shown, images.ReadSize(path));
  ASSIGN_OR_RETURN(const uint64_t has, images.MeasureImage(path));
  const uint64_t size = std::max(shown, volume.spec.size_bytes);
  if (has >= size) return absl::OkStatus();
  RETURN_IF_ERROR(room.CheckFree(absl::StrCat("volume ", volume.id.value()), size - has));
  LogInfo("array", "a thick volume gets the space that its file has not", {{"volume", volume.id.value()}});
  return images.GrowImage(path, size, Provisioning::kThick);
}

}  // namespace

void TakeThickSpace(Catalogue& catalogue, const ImageStore& images, const PoolRoom& room) {
  const auto rows = catalogue.volumes().ListAllVolumes();
  if (!rows.ok()) return;  // nothing works then, and others say so
  for (const VolumeRow& row : *rows) {
    if (row.copying || row.volume.spec.provisioning != Provisioning::kThick) continue;
    const absl::Status taken = TakeSpace(row.volume, images, room);
    if (!taken.ok()) LogWarn("array", absl::StrCat("no space for a thick volume: ", taken.message()));
  }
}

}  // namespace lunkeeper
