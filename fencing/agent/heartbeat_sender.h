#pragma once
// Sends a node's heartbeats to every controller replica, each half second, from a thread of its own, and ends
// the I/O of the volumes that an answer says are fenced. The node is looked at from another thread, so that a
// data path which hangs does not silence it. Thread-safe. Nothing fails: a stream that ends is begun anew,
// and a replica that does not read misses heartbeats. The destructor closes the streams, which tells the
// controllers that this node's kernel lives. `replicas` outlives it.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "devices/datapath/initiator.h"
#include "fencing/agent/replicas.h"
#include "fencing/core/types.h"

namespace lunkeeper {

struct HeartbeatOptions {
  NodeId node;
  absl::Duration every = absl::Milliseconds(500);
};

class HeartbeatSender {
 public:
  virtual ~HeartbeatSender() = default;
  // Of the fence in force against this node at an array, however it was heard of; as an answer to a
  // heartbeat.
  virtual void OnFence(const fencing::ArrayId& array, const fencing::ArrayFence& fence) = 0;
};

// What a node sees of itself. Each call ends within a second or so.
struct NodeView {
  // Its devices. When it fails, I/O to all that were there before counts as failing.
  std::function<absl::StatusOr<std::vector<Device>>()> devices;
  // Ends a device's I/O for good.
  std::function<absl::Status(const Device& device, const std::string& why)> fail;
  // Whether kubelet and the container runtime answer. Empty: nobody knows, and they are taken to be well.
  std::function<bool()> kubelet_ok;
};
std::unique_ptr<HeartbeatSender> StartHeartbeatSender(const HeartbeatOptions& options, Replicas& replicas,
                                                      NodeView view);

}  // namespace lunkeeper
