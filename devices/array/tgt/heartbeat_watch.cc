#include "devices/array/tgt/heartbeat_watch.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {

absl::Status HeartbeatWatch::TakeBlock(const std::string& bytes, Time now) {
  HeartbeatBlock sector;
  // Reported at the second bad look in a row: one alone may have caught a write of the node half done.
  if (const absl::Status status = ReadOwnBlock(bytes, &sector); !status.ok())
    return ++bad_looks_ == 2 ? status : absl::OkStatus();
  bad_looks_ = 0;
  // Whatever changes is a heartbeat. It need not be a higher sequence: a plugin that was
  // restarted may count anew.
  if (looked_ && sector != last_ && !sector.node.empty()) heartbeat_at_ = now;
  looked_ = true;
  last_ = std::move(sector);
  return absl::OkStatus();
}

absl::Status HeartbeatWatch::ReadOwnBlock(const std::string& bytes, HeartbeatBlock* sector) const {
  absl::StatusOr<HeartbeatBlock> read = ReadHeartbeatBlock(bytes);
  if (absl::IsNotFound(read.status())) return absl::OkStatus();
  RETURN_IF_ERROR(read.status());
  if (read->node != node_)
    return absl::InvalidArgumentError(
        absl::StrCat("heartbeat block: it is said to be of node ", read->node.value()));
  *sector = *std::move(read);
  return absl::OkStatus();
}

std::optional<LandedHeartbeat> HeartbeatWatch::LastHeartbeat(Time now) const {
  if (!heartbeat_at_) return std::nullopt;
  return LandedHeartbeat{
      .node = node_, .sequence = last_.sequence, .age = absl::FromChrono(now - *heartbeat_at_)};
}

}  // namespace lunkeeper
