#pragma once
// Where the beats of nodes go: the failover module, in each controller replica. Called from gRPC's threads,
// for many nodes at once: thread-safe, and never blocking.

#include <map>

#include "fencing/core/event.h"

namespace lunkeeper {

using FencesByArray = std::map<fencing::ArrayId, fencing::ArrayFence>;

class BeatSink {
 public:
  virtual ~BeatSink() = default;
  // Answers with the fences in force against the node; that is how it learns of them.
  virtual FencesByArray OnBeat(fencing::Beat beat) = 0;
  // The stream ended while its beats were current: somebody closed the connection, so the node's kernel
  // lives. A stream that had fallen silent before it ended is not reported: its end says nothing.
  virtual void OnClosed(const NodeId& node) = 0;
};

}  // namespace lunkeeper
