#pragma once
// Sends a node's heartbeats to every controller replica each half second, and at once when a volume begins or
// ceases to fail. Ends the I/O of volumes that an answer reports as fenced or whose array it reports as
// removed, and sets the limits that it reports. One thread sends, another observes the node, so a hanging
// data path does not silence the node. Thread-safe. Nothing fails: an ended stream is opened again, and a
// replica that does not read misses heartbeats. The destructor closes the streams, which tells the
// controllers that this node's kernel lives.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/tcp_prober.h"
#include "devices/datapath/initiator.h"
#include "devices/datapath/limit_setter.h"
#include "fencing/agent/heartbeat_connection.h"
#include "fencing/agent/this_boot.h"
#include "fencing/core/types.h"

namespace lunkeeper {

struct HeartbeatOptions {
  NodeId node;
  absl::Duration every = absl::Milliseconds(500);
  // They number the heartbeats.
  std::string boot = BootId();
  std::function<uint64_t()> millis_since_boot = MillisSinceBoot;
  Executor& executor = RealExecutor();
  std::function<std::unique_ptr<Prober>()> make_prober = MakeProber;  // for the arrays' portals
};

class HeartbeatSender {
 public:
  virtual ~HeartbeatSender() = default;
  // Enforces a fence against this node that is in force at an array, as if an answer to a heartbeat had
  // reported it.
  virtual void OnFence(const fencing::ArrayId& array, const fencing::ArrayFence& fence) = 0;
  // A heartbeat of this node has landed on the array. When they stop, its portals are probed: of an idle
  // volume nobody would notice for long that its path is lost.
  virtual void OnStorageHeartbeat(const fencing::ArrayId& array) = 0;
};

// How a node observes itself. Each call ends within a second or so.
struct NodeView {
  // Lists the node's devices. When it fails, every device of the last list counts as failing.
  std::function<absl::StatusOr<std::vector<Device>>()> devices;
  // Ends a device's I/O for good.
  std::function<absl::Status(const Device& device, const std::string& why)> fail;
  // Of these devices, the volumes whose file system closed itself to writes. Empty: unknown.
  std::function<fencing::VolumeSet(const std::vector<Device>& devices)> closed = {};
  // Nothing was asked of the device that is not answered. Empty: unknown, and none counts as idle.
  std::function<bool(const Device& device)> is_idle = {};
  // Where these devices are mounted, for people. Empty: unknown.
  std::function<std::map<VolumeId, std::vector<std::string>>(const std::vector<Device>& devices)> mounts = {};
  // Whether kubelet and the container runtime answer. Empty: unknown, and both are taken to be well.
  std::function<bool()> kubelet_ok;
  // Sets the limits of a volume's device. Empty: they stay as they were attached.
  LimitSetter::Set set_limits = {};
};
std::unique_ptr<HeartbeatSender> StartHeartbeatSender(HeartbeatOptions options,
                                                      ListHeartbeatReceivers receivers, NodeView view);

}  // namespace lunkeeper
