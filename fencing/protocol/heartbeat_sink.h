#pragma once
// Receives the nodes' heartbeats in each controller replica: the failover module, or LimitsSink without
// failover. gRPC's threads call it for many nodes at once, so it is thread-safe and never blocks.

#include <map>
#include <optional>
#include <set>
#include <string>

#include "devices/volume_limits.h"
#include "fencing/core/event.h"
#include "fencing/protocol/device_detail.h"

namespace lunkeeper {

using FencesByArray = std::map<fencing::ArrayId, fencing::ArrayFence>;

class HeartbeatSink {
 public:
  virtual ~HeartbeatSink() = default;
  // Returns the fences in force against the node; the answer to the heartbeat carries them.
  virtual FencesByArray OnHeartbeat(fencing::Heartbeat heartbeat) = 0;
  // What each heartbeat says of some of the node's devices, for people; called before it is handed over.
  virtual void OnDetails(const fencing::Heartbeat&, const DeviceDetails&) {}
  // Of the node's volumes that have had limits; the answer carries them too. They may be older than the
  // node's.
  virtual LimitsByVolume LimitsOf(const NodeId&) { return {}; }
  // The arrays that an operator removed; each answer carries them, so a node that was away learns of them,
  // too.
  virtual std::set<std::string> RemovedArrays() { return {}; }
  // The node's stream ended while its heartbeats were current. Its connection was closed in order, so the
  // node's kernel lives. A stream that had been silent before it ended is not reported.
  virtual void OnClosed(const NodeId& node) = 0;
  // Whether the node's heartbeats reach this replica: the last one came less than a second ago. None: it does
  // not keep count of them, and has no vote.
  virtual std::optional<bool> Hears(const NodeId&) { return std::nullopt; }
  // Whether the node's stream to this replica has ended, and its kernel goes on: it answered a probe less
  // than two seconds ago. Then its plugin alone has ended, as in an upgrade.
  virtual bool KernelAnswers(const NodeId&) { return false; }
  // What this replica sees. None: it could not lead.
  virtual std::optional<fencing::ReplicaSight> Sight() { return std::nullopt; }
  // Its name among the replicas; empty: it has none.
  virtual std::string ReplicaName() { return ""; }
};

}  // namespace lunkeeper
