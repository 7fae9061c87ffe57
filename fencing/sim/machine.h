#pragma once
// A node: a kernel that may die, a user space that may freeze, a kubelet, the node plugin, the data path, and
// containers that write. A device that was refused or stayed away too long fails for good.

#include <map>
#include <optional>

#include "fencing/core/event.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

constexpr Span kKubeletLease = 10_s;  // how often a kubelet renews it

struct Device {
  ArrayId array;
  VolumeId volume;
  Generation generation = 0;
  uint64_t session = 0;  // 0: logging in
  bool failed = false;
  std::optional<WorldTime> lost_at;  // while it has no session, or a write is not answered
  std::optional<Write> pending;
  uint64_t attempt = 0;  // tells answers of older logins and writes apart
};

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

  // Faults. Each may come in any state.
  void PowerOff();
  void PowerOn();  // boots: nothing is mounted
  void Freeze() { frozen_ = true; }
  void Thaw() { frozen_ = false; }
  void HangKubelet(bool on) { kubelet_hung_ = on; }
  void HangPlugin(bool on) { plugin_hung_ = on; }
  void ClosePlugin();  // it restarts: its streams close
  void Retire();       // off, for good
  bool frozen() const { return frozen_; }
  bool kubelet_hung() const { return kubelet_hung_; }

  // From the network.
  void Notice(const ArrayId& array, const ArrayFence& fence);
  bool AnswersProbe() const { return powered_; }

  // For the checker.
  bool HasLeftovers(const ArrayId& array, const VolumeSet& volumes, Generation before) const;
  bool HasFailedDevice() const;
  const Container* FindContainer(const Uid& pod) const;
  const Device* FindDevice(const VolumeId& volume) const;
  // When every container of `pod` last got a write acknowledged; empty: it does not run, or never did.
  std::optional<WorldTime> WroteAt(const PodId& pod) const;

 private:
  bool registered_ = false;  // the API server knows its driver
  bool Alive(uint64_t life) const { return powered_ && life == life_; }
  void Every(Span period, void (Machine::*what)());
  void Again(Span period, void (Machine::*what)());
  void Heartbeat();
  void SyncKubelet();
  void RenewLease();
  void Reconcile(const std::vector<Pod>& pods);
  void Start(const Pod& pod);
  void Ask(const ArrayId& array, const VolumeId& volume);
  void Attach(const ArrayId& array, const VolumeId& volume, Generation generation);
  void LogIn(Device& device);
  void LoggedIn(const VolumeId& volume, uint64_t attempt, uint64_t session);
  void Submit(Device& device);
  void Fail(Device& device);
  void WriteOn(const Uid& pod);
  void End(Container& container);
  void Unstage();
  bool InUse(const VolumeId& volume) const;
  void Release(const Device& device);
  void LookAtDevices();
  void LookForLostGrants();
  void SendReleases();

  World& world_;
  const NodeName name_;
  const Endpoint endpoint_;
  const NodeId id_;
  uint64_t life_ = 1, sequence_ = 0, storage_sequence_ = 0;
  bool powered_ = true, retired_ = false, frozen_ = false, kubelet_hung_ = false, plugin_hung_ = false;
  WorldTime plugin_back_at_;
  std::map<VolumeId, Device> devices_;
  std::map<Uid, Container> containers_;
  std::map<VolumeId, std::optional<WorldTime>> asked_;  // empty: answered
  std::map<ArrayId, ArrayFence> known_;
  std::map<PodId, WorldTime> wrote_at_;
  struct ToRelease {
    ArrayId array;
    Generation generation = 0;
  };
  std::map<VolumeId, ToRelease> releases_;
};

}  // namespace lunkeeper::fencing::sim
