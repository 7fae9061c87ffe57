#pragma once
// Where the heartbeats of nodes go: the failover module, in each controller replica. Called from gRPC's
// threads, for many nodes at once: thread-safe, and never blocking.

#include <map>

#include "fencing/core/event.h"

namespace lunkeeper {

using FencesByArray = std::map<fencing::ArrayId, fencing::ArrayFence>;

class HeartbeatSink {
 public:
  virtual ~HeartbeatSink() = default;
  // Answers with the fences in force against the node; that is how it learns of them.
  virtual FencesByArray OnHeartbeat(fencing::Heartbeat heartbeat) = 0;
  // The stream ended while its heartbeats were current: somebody closed the connection, so the node's kernel
  // lives. A stream that had fallen silent before it ended is not reported: its end says nothing.
  virtual void OnClosed(const NodeId& node) = 0;
};

}  // namespace lunkeeper
