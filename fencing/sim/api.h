#pragma once
// The API server with what stands right behind it: versioned objects, conditional writes, watches that come
// late or twice or break, the StatefulSet controller, the scheduler, the node lifecycle controller.

#include <functional>
#include <map>
#include <vector>

#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

// What a workload's pods look like; there is one pod of each.
struct Workload {
  PodId id;
  std::string owner_kind = "StatefulSet";
  FailoverPolicy policy = FailoverPolicy::kUnsaid;
  VolumesByArray volumes;
  Span think = 200_ms;  // between its writes
  bool Protected() const { return policy != FailoverPolicy::kNever; }
};

struct Written {
  Outcome outcome = Outcome::kOk;
  Version version;
};

using Watch = std::function<void(decltype(Event::what))>;

class Api {
 public:
  explicit Api(World& world);
  Endpoint endpoint() const { return endpoint_; }

  void AddNode(const NodeName& name, const NodeId& instance);
  void AddWorkload(const Workload& workload);
  std::vector<Workload>& workloads() { return workloads_; }

  // Writes, as the core's actions ask for them. `writer` is a replica's name.
  Written Put(const NodeFence& fence);
  Outcome Remove(const RemoveNodeFence& call);
  Written Taint(const SetTaint& call);
  Outcome Delete(const DeletePod& call);
  void Charge(const VolumeId& volume, const ChargedNodes& nodes);
  Written WriteLease(const std::string& writer, const Version& expected);
  const LeaseSeen& lease() const { return lease_; }
  // None: there is no such Node.
  std::optional<KubeletState> ReadKubelet(const NodeName& name) const;

  // Lists everything into `watch`, in order, ending with ApiSynced, and goes on with changes.
  void List(size_t reflector, Endpoint to, Watch watch);
  bool IsWatching(size_t reflector) const {
    return reflector < reflectors_.size() && !reflectors_[reflector].broken;
  }

  // Kubelets.
  std::vector<Pod> PodsOn(const NodeName& name) const;
  void Renew(const NodeName& name, const NodeId& instance);
  void Report(const Uid& pod, bool running, bool crash_looping);
  void Ended(const Uid& pod);  // its graceful end is done

  // What faults and people do.
  bool up = true;
  int error_percent = 0, late_percent = 0;
  void TakeCopy();
  void RestoreCopy();
  void BreakWatches();
  void DeleteNode(const NodeName& name);
  void SetOutOfService(const NodeName& name, bool on);
  void CreateFence(const NodeId& node);
  void DeleteFence(const NodeId& node);
  void EndAllAsOperator();  // whatever people asked for, they take back
  void ForceDeleteAsOperator(const PodId& pod);
  void AllowVolumesAsOperator();  // all that nodes died of

  const std::map<NodeName, Node>& nodes() const { return objects_.nodes; }
  const std::map<PodId, Pod>& pods() const { return objects_.pods; }
  const std::map<NodeId, NodeFence>& fences() const { return objects_.fences; }

 private:
  struct Objects {
    std::map<NodeName, Node> nodes;
    std::map<PodId, Pod> pods;
    std::map<NodeId, NodeFence> fences;
    std::map<VolumeId, ChargedNodes> charged;
  };
  struct Reflector {
    Watch watch;
    Endpoint to = 0;
    WorldTime next_at;
    uint64_t life = 0;
    bool broken = true;
  };

  void Push(const decltype(Event::what)& what);
  void PushTo(Reflector& reflector, decltype(Event::what) what, bool twice);
  void Ensure(const Workload& workload);
  void EnsureSoon(const Workload& workload);
  void Schedule(const PodId& id);
  void LookAfterNodes();
  Version NextVersion() { return Version(std::to_string(++version_)); }

  World& world_;
  const Endpoint endpoint_;
  uint64_t version_ = 0, uid_ = 0;
  Objects objects_, copy_;
  LeaseSeen lease_, lease_copy_;
  std::map<NodeName, WorldTime> renewed_;
  std::vector<Workload> workloads_;
  std::vector<Reflector> reflectors_;
};

}  // namespace lunkeeper::fencing::sim
