#pragma once
// The node plugin of a machine, as far as heartbeats and grants go: the product's own senders to the
// controllers and to storage (fencing/agent) in a process of its own, and what asks for grants. It has
// streams to the simulated replicas and sessions with heartbeat LUNs, sees the machine's devices, and probes
// the portals of the simulated arrays. What it makes of its process outlives the machine's life; one that was
// killed reaches nobody. One thread.

#include <memory>
#include <vector>

#include "fencing/agent/heartbeat_sender.h"
#include "fencing/agent/storage_heartbeats.h"
#include "fencing/sim/data_path.h"
#include "fencing/sim/node_grants.h"
#include "fencing/sim/process.h"

namespace lunkeeper::fencing::sim {

class NodePlugin {
 public:
  NodePlugin(World& world, Machine& machine, DataPath& data_path);

  // It hangs. What comes for it waits.
  void Hold(bool on) { process_.Hold(on); }
  void Kill();
  bool ended() const { return reaped_ && process_.threads() == 0; }
  NodeGrants& grants() { return grants_; }

 private:
  std::vector<HeartbeatReceiver> ListReceivers();
  absl::StatusOr<std::vector<lunkeeper::Device>> ListDevices() const;
  bool IsIdle(const lunkeeper::Device& device) const;
  absl::Status FailDevice(const lunkeeper::Device& device);
  std::unique_ptr<StorageHeartbeatSender> StartToStorage();

  World& world_;
  Machine& machine_;
  DataPath& data_path_;
  Process process_;
  NodeGrants grants_;
  std::unique_ptr<HeartbeatSender> sender_;
  std::unique_ptr<StorageHeartbeatSender> to_storage_;
  bool reaped_ = false;
  std::unique_ptr<Thread> reaper_;
};

}  // namespace lunkeeper::fencing::sim
