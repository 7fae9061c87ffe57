#pragma once
// A third of the Array interface: heartbeat LUNs, by which the array hears nodes itself. Each node writes a
// heartbeat (heartbeat_block.h) to one of its own, twice a second; so the array can say that a node lives
// when the network between that node and the controllers does not. The other way, the array writes there what
// fence is in force against the node (fence_notice.h). See devices/array/array.h for threads, durability and
// failure.
//
// A heartbeat LUN is no volume: it is granted to one node alone and for good, is never fenced, and is in no
// list and no limit. One that nobody has written to for a week is forgotten, and made again when it is asked
// for.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/types.h"

namespace lunkeeper {

// The last heartbeat of a node that landed since the array's program was started.
struct LandedHeartbeat {
  NodeId node;
  uint64_t sequence = 0;  // changes with each heartbeat
  absl::Duration age;     // since it was seen, on the array's own monotonic clock
};

class HeartbeatLuns {
 public:
  virtual ~HeartbeatLuns() = default;

  // How the node reaches its heartbeat LUN, which is made if there is none yet. RESOURCE_EXHAUSTED: its
  // machine has too many, under other instances.
  virtual absl::StatusOr<Connection> OpenHeartbeatLun(const NodeId& node) = 0;
  // UNIMPLEMENTED: an array without heartbeat LUNs.
  virtual absl::StatusOr<std::vector<LandedHeartbeat>> ListHeartbeats() = 0;
};

}  // namespace lunkeeper
