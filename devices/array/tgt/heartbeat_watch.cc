#include "devices/array/tgt/heartbeat_watch.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {

void HeartbeatWatch::SetKey(const std::string& key) {
  if (key == key_) return;
  key_ = key;
  looked_ = false;
  past_boots_.clear();
}

absl::Status HeartbeatWatch::TakeBlock(const std::string& bytes, Time now) {
  HeartbeatBlock sector;
  // Reported at the second bad look in a row: one alone may have caught a write of the node half done.
  if (const absl::Status status = ReadOwnBlock(bytes, &sector); !status.ok())
    return ++bad_looks_ == 2 ? status : absl::OkStatus();
  bad_looks_ = 0;
  // Whatever changes is a heartbeat. It need not be a higher sequence: a plugin that was
  // restarted may count anew.
  if (looked_ && sector != last_ && !sector.node.empty()) heartbeat_at_ = now;
  if (!key_.empty() && looked_ && sector.boot != last_.boot && !last_.boot.empty())
    past_boots_.insert(last_.boot);
  looked_ = true;
  last_ = std::move(sector);
  return absl::OkStatus();
}

absl::Status HeartbeatWatch::ReadOwnBlock(const std::string& bytes, HeartbeatBlock* sector) const {
  absl::StatusOr<HeartbeatBlock> read = ReadHeartbeatBlock(bytes, key_);
  if (absl::IsNotFound(read.status())) return absl::OkStatus();
  RETURN_IF_ERROR(read.status());
  if (read->node != node_)
    return absl::InvalidArgumentError(
        absl::StrCat("heartbeat block: it is said to be of node ", read->node.value()));
  RETURN_IF_ERROR(CheckIsNew(*read));
  *sector = *std::move(read);
  return absl::OkStatus();
}

absl::Status HeartbeatWatch::CheckIsNew(const HeartbeatBlock& sector) const {
  if (key_.empty() || !looked_ || sector == last_) return absl::OkStatus();
  const bool fresh =
      sector.boot == last_.boot ? sector.sequence > last_.sequence : !past_boots_.contains(sector.boot);
  return fresh ? absl::OkStatus()
               : absl::UnauthenticatedError("heartbeat block: it is one that the node wrote before");
}

std::optional<LandedHeartbeat> HeartbeatWatch::LastHeartbeat(Time now) const {
  if (!heartbeat_at_) return std::nullopt;
  return LandedHeartbeat{
      .node = node_, .sequence = last_.sequence, .age = absl::FromChrono(now - *heartbeat_at_)};
}

}  // namespace lunkeeper
