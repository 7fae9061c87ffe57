#pragma once
// A node: a kernel that may die, a user space that may freeze, a kubelet, the node plugin, the data path, and
// containers that write. The devices are in data_path.h. One thread.

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "fencing/core/event.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/data_path.h"
#include "fencing/sim/node_plugin.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

struct Workload;

constexpr Span kKubeletLease = 10_s;  // how often a kubelet renews it

struct Container {
  Pod pod;
  bool started = false;  // it was once
  WorldTime started_at;
  bool running = false;
  bool ending = false;
};

class Machine {
 public:
  Machine(World& world, NodeName name, int instance);

  const NodeName& name() const { return name_; }
  const NodeId& id() const { return id_; }
  Endpoint endpoint() const { return endpoint_; }
  bool powered() const { return powered_; }
  bool Heartbeats() const;  // it runs, and so does its plugin

  // Faults. Each may come in any state.
  void PowerOff();  // with what runs on it, also a controller's replica
  void ShutDown();  // in order: its streams close, and soon its kernel is gone. It is sick from now on
  void PowerOn();   // boots: nothing is mounted
  void Freeze() { SetFrozen(true); }
  void Thaw() { SetFrozen(false); }
  void HangKubelet(bool on) { kubelet_hung_ = on; }
  void HangPlugin(bool on);
  void BlockProbes(bool on) { blocked_ += on ? 1 : -1; }
  void StepClock(Span by);
  Span clock_error() const { return clock_error_; }
  void ClosePlugin();  // it restarts: its streams close
  void Retire();       // off, for good
  // The world is over.
  void End();
  bool ended() const;
  bool frozen() const { return frozen_; }
  // Its kubelet is well, and has known its pods since the boot.
  bool StartsContainers() const { return powered_ && !frozen_ && !kubelet_hung_ && registered_; }
  bool kubelet_hung() const { return kubelet_hung_; }

  // For the data path and the grants. A life ends when the power goes; nothing of it reaches the next one.
  uint64_t life() const { return life_; }
  bool IsAlive(uint64_t life) const { return powered_ && life == life_; }
  bool IsRunning(uint64_t life) const { return IsAlive(life) && !frozen_; }
  void NoteWritten(const ArrayId& array, const VolumeId& volume);

  // For the plugin.
  NodePlugin* plugin() const { return plugin_; }  // null: none runs
  uint64_t MillisSinceBoot() const;
  // An answer or a notice names a fence of this node.
  void NoteFence(const ArrayId& array, const ArrayFence& fence);

  bool ended_in_order() const { return ended_in_order_; }
  bool AnswersProbe() const { return powered_ && blocked_ == 0; }

  // For the checker.
  bool HasLeftovers(const ArrayId& array, const VolumeSet& volumes, Generation before) const;
  bool HasFailedDevice() const;
  const Container* FindContainer(const Uid& pod) const;
  const Device* FindDevice(const VolumeId& volume) const { return data_path_.FindDevice(volume); }
  // When its container here last got a write acknowledged; empty: it does not run, or never did.
  std::optional<WorldTime> WroteAt(const Workload& workload) const;

 private:
  bool registered_ = false;  // the API server knows its driver
  void Every(Span period, void (Machine::*what)());
  void Again(Span period, void (Machine::*what)());
  void SetFrozen(bool on);
  void StartPluginIn(Span delay);
  void KillPlugin();
  void NoteOpenWays();
  void SyncKubelet();
  void RenewLease();
  void Reconcile(const std::vector<Pod>& pods);
  void Start(const Pod& pod);
  // Writes to each volume of the pod, now and again, as long as its container runs.
  void WriteOn(const Uid& pod);
  // If one of its volumes is poisoned.
  void DieSoonOf(const Pod& pod);
  void End(Container& container);
  void Unstage();
  bool InUse(const VolumeId& volume) const;
  bool Claims(const Container& container, const Device& device) const;
  void LookAtDevices();
  void LookForLostGrants();

  World& world_;
  const NodeName name_;
  const Endpoint endpoint_;
  const NodeId id_;
  uint64_t life_ = 1, plugin_starts_ = 0;
  bool powered_ = true, retired_ = false, frozen_ = false, kubelet_hung_ = false, plugin_hung_ = false,
       ended_in_order_ = false;
  WorldTime booted_at_;
  Span clock_error_;
  int blocked_ = 0;
  DataPath data_path_;
  std::vector<std::unique_ptr<NodePlugin>> plugins_;  // former ones are still ending
  NodePlugin* plugin_ = nullptr;                      // the one that runs; null while there is none
  std::map<Uid, Container> containers_;
  std::map<ArrayId, ArrayFence> known_;
  std::map<PodId, WorldTime> wrote_at_;
};

}  // namespace lunkeeper::fencing::sim
