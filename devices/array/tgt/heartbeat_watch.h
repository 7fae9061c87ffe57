#pragma once
// What one heartbeat LUN has shown over time. A heartbeat is a sequence that changes: its age counts from
// when it was seen here, on this machine's monotonic clock, whatever the node's clock says. What stood there
// at the first look is of unknown age, and no heartbeat. For one thread; nothing fails.

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "devices/array/fence_control.h"
#include "devices/heartbeat/heartbeat_block.h"

namespace lunkeeper {

class HeartbeatWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit HeartbeatWatch(NodeId node) : node_(std::move(node)) {}

  // Takes in the LUN's first block as it is at `now`. INVALID_ARGUMENT: it is malformed, or speaks for
  // another node, and counts for nothing; said once, until a good one is seen. One bad look alone is a write
  // under way.
  absl::Status TakeBlock(const std::string& bytes, Time now);
  std::optional<LandedHeartbeat> LastHeartbeat(Time now) const;

 private:
  absl::Status ReadOwnBlock(const std::string& bytes, HeartbeatBlock* sector) const;

  const NodeId node_;
  bool looked_ = false;
  int bad_looks_ = 0;  // in a row
  HeartbeatBlock last_;
  std::optional<Time> heartbeat_at_;
};

}  // namespace lunkeeper
