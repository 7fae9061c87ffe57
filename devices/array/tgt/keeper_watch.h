#pragma once
// What one keeper LUN has shown over time. A beat is a sequence that changes: its age counts from when it was
// seen here, on this machine's monotonic clock, whatever the node's clock says. What stood there at the first
// look is of unknown age, and no beat. For one thread; nothing fails.

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "devices/array/keeper_luns.h"
#include "devices/heartbeat/keeper_sector.h"

namespace lunkeeper {

class KeeperWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit KeeperWatch(NodeId node) : node_(std::move(node)) {}

  // Takes in the LUN's first block as it is at `now`. INVALID_ARGUMENT: it is malformed, or speaks for
  // another node, and counts for nothing; said once, until a good one is seen. One bad look alone is a write
  // under way.
  absl::Status See(const std::string& bytes, Time now);
  std::optional<LandedBeat> Last(Time now) const;

 private:
  absl::Status Check(const std::string& bytes, KeeperSector* sector) const;

  const NodeId node_;
  bool looked_ = false;
  int bad_looks_ = 0;  // in a row
  KeeperSector last_;
  std::optional<Time> beat_at_;
};

}  // namespace lunkeeper
