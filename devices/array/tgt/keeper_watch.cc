#include "devices/array/tgt/keeper_watch.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {

absl::Status KeeperWatch::See(const std::string& bytes, Time now) {
  KeeperSector sector;
  if (const absl::Status status = Check(bytes, &sector); !status.ok())
    return ++bad_looks_ == 2 ? status : absl::OkStatus();
  bad_looks_ = 0;
  if (looked_ && sector != last_ && !sector.node.empty()) beat_at_ = now;
  looked_ = true;
  last_ = std::move(sector);
  return absl::OkStatus();
}

absl::Status KeeperWatch::Check(const std::string& bytes, KeeperSector* sector) const {
  absl::StatusOr<KeeperSector> read = ReadSector(bytes);
  if (absl::IsNotFound(read.status())) return absl::OkStatus();
  RETURN_IF_ERROR(read.status());
  if (read->node != node_)
    return absl::InvalidArgumentError(
        absl::StrCat("keeper sector: it is said to be of node ", read->node.value()));
  *sector = *std::move(read);
  return absl::OkStatus();
}

std::optional<LandedBeat> KeeperWatch::Last(Time now) const {
  if (!beat_at_) return std::nullopt;
  return LandedBeat{.node = node_, .sequence = last_.sequence, .age = absl::FromChrono(now - *beat_at_)};
}

}  // namespace lunkeeper
