#pragma once
// What one heartbeat LUN has shown over time. A heartbeat is a sequence that changes: its age counts from
// when it was seen here, on this machine's monotonic clock, whatever the node's clock says. What stood there
// at the first look is of unknown age, and no heartbeat.
//
// With a key only signed blocks count, and none of them twice: within a boot the sequence has to rise, and a
// boot that was followed by another does not come back. So who records what a node wrote cannot make it look
// alive later. For one thread; nothing fails.

#include <chrono>
#include <optional>
#include <set>
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

  // Empty: the node does not sign. Another key begins anew with the next look.
  void SetKey(const std::string& key);

  // Takes in the LUN's first block as it is at `now`. INVALID_ARGUMENT: it is malformed, or speaks for
  // another node; UNAUTHENTICATED: it is not signed as it must be, or is an old one again. It counts for
  // nothing; said once, until a good one is seen. One bad look alone is a write under way.
  absl::Status TakeBlock(const std::string& bytes, Time now);
  std::optional<LandedHeartbeat> LastHeartbeat(Time now) const;

 private:
  absl::Status ReadOwnBlock(const std::string& bytes, HeartbeatBlock* sector) const;
  absl::Status CheckIsNew(const HeartbeatBlock& sector) const;

  const NodeId node_;
  std::string key_;
  std::set<std::string> past_boots_;  // with a key: every boot that was followed by another
  bool looked_ = false;
  int bad_looks_ = 0;  // in a row
  HeartbeatBlock last_;
  std::optional<Time> heartbeat_at_;
};

}  // namespace lunkeeper
