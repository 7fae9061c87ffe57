#pragma once
// The node plugin of a machine, as far as heartbeats to controllers go: the product's own sender
// (fencing/agent) in a process of its own. It has streams to the simulated replicas, sees the machine's
// devices, and probes the portals of the simulated arrays. What it makes of its process outlives the
// machine's life; one that was killed reaches nobody. One thread.

#include <memory>
#include <vector>

#include "fencing/agent/heartbeat_sender.h"
#include "fencing/sim/data_path.h"
#include "fencing/sim/process.h"

namespace lunkeeper::fencing::sim {

class NodePlugin {
 public:
  NodePlugin(World& world, Machine& machine, DataPath& data_path);

  // It hangs. What comes for it waits.
  void Hold(bool on) { process_.Hold(on); }
  void Kill();
  bool ended() const { return reaped_ && process_.threads() == 0; }

  // A heartbeat has landed on the array, whose answer is back; with the fence in force there, if any.
  void OnLanded(const ArrayId& array, const ArrayFence& notice);

 private:
  std::vector<HeartbeatReceiver> ListReceivers();
  absl::StatusOr<std::vector<lunkeeper::Device>> ListDevices() const;
  bool IsIdle(const lunkeeper::Device& device) const;
  absl::Status FailDevice(const lunkeeper::Device& device);

  World& world_;
  Machine& machine_;
  DataPath& data_path_;
  Process process_;
  std::unique_ptr<HeartbeatSender> sender_;
  bool reaped_ = false;
  std::unique_ptr<Thread> reaper_;
};

}  // namespace lunkeeper::fencing::sim
