#pragma once
// The API server with what stands right behind it: versioned objects, conditional writes, watches that come
// late or twice or break, the StatefulSet controller, the scheduler, the node lifecycle controller.

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/kube/kube_client.h"
#include "fencing/sim/feeds.h"
#include "fencing/sim/object_store.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

// What a workload's pods look like; there is one pod of each that is not being deleted.
struct Workload {
  PodId id;
  std::string owner_kind = "StatefulSet";
  FailoverPolicy policy = FailoverPolicy::kUnsaid;
  VolumesByArray volumes;
  bool foreign = false;         // it has a volume of another driver, too
  bool awaits_failure = false;  // its Job makes another pod only when this one has failed, or is gone
  Span think = 200_ms;          // between its writes
  bool Protected() const { return policy != FailoverPolicy::kNever && !foreign; }
  // A StatefulSet's pod has its name. Each of another owner has one of its own, and is made when the one
  // before is only asked to end.
  bool NamesItsPod() const { return owner_kind == "StatefulSet"; }
  bool Owns(const PodId& pod) const { return pod == id || pod.value().starts_with(id.value() + "-"); }
};

class Api {
 public:
  explicit Api(World& world);
  Endpoint endpoint() const { return endpoint_; }

  void AddNode(const NodeName& name, const NodeId& instance);
  void AddWorkload(const Workload& workload);
  std::vector<Workload>& workloads() { return workloads_; }
  const Workload* FindWorkloadOf(const PodId& pod) const;  // null: it is nobody's
  // The one that is to stay, if there are two; null: none.
  const Pod* FindPodOf(const Workload& workload) const;

  // The verbs of the product's client (fencing/kube/kube_client.h), at the server.
  absl::StatusOr<Json> Get(const kube::ObjectRef& at) const;
  std::vector<Json> List(const kube::Selection& selection) const { return store_.List(selection); }
  std::string version() const { return store_.version(); }
  absl::StatusOr<Json> Create(const kube::ObjectRef& at, const Json& object);
  absl::StatusOr<Json> Patch(const kube::ObjectRef& at, const Json& merge,
                             const kube::Preconditions& only_if);
  absl::Status Delete(const kube::ObjectRef& at, const kube::Preconditions& only_if,
                      std::optional<absl::Duration> grace);
  // The feed gets what has changed since `version`, and what changes from now on, for at most `lasts`.
  absl::Status OpenWatch(const std::shared_ptr<Feed>& feed, const std::string& version, Span lasts);

  // Whose the leader's lease is.
  std::string LeaseHolder() const;

  // Kubelets.
  std::vector<Pod> PodsOn(const NodeName& name) const;
  void Renew(const NodeName& name, const NodeId& instance, Span clock_error);
  void Report(const Uid& pod, bool running, bool crash_looping);
  void Ended(const Uid& pod);  // its graceful end is done

  // What faults and people do.
  bool up = true;
  bool refuses = false;  // connections, while it is down; or else it takes them, and says nothing
  int error_percent = 0, late_percent = 0;
  Span records_take;               // writes of NodeFences, as behind a slow webhook
  int records_slow = 0;            // so many were sent while that was so
  bool registers_tainted = false;  // kubelets do so with their nodes
  int finalizers = 0;              // of each pod: it stays, deleted, until there are none
  void TakeCopy();
  void RestoreCopy();
  void BreakWatches();
  void Compact() { store_.Compact(); }
  void DeleteNode(const NodeName& name);
  void SetOutOfService(const NodeName& name, bool on);
  void CreateFence(const NodeId& node);
  void DeleteFence(const NodeId& node);
  void EndAllAsOperator();  // whatever people asked for, they take back
  void DeletePodAsOperator(const PodId& pod);
  void ForceDeleteAsOperator(const Workload& workload);
  void DeleteByForce(const PodId& pod);
  void AllowVolumesAsOperator();  // all that nodes died of

  const ChargedNodes& ChargedTo(const VolumeId& volume) { return objects_.charged[volume]; }
  const std::map<NodeName, Node>& nodes() const { return objects_.nodes; }
  const std::map<PodId, Pod>& pods() const { return objects_.pods; }
  const std::map<NodeId, NodeFence>& fences() const { return objects_.fences; }

 private:
  struct Objects {
    std::map<NodeName, Node> nodes;
    std::map<PodId, Pod> pods;
    std::map<NodeId, NodeFence> fences;
    std::map<VolumeId, ChargedNodes> charged;
    std::set<Uid> failed;  // pods whose status says so
  };
  void Publish(const Node& node);
  void Publish(const Pod& pod);
  void PublishVolume(const VolumeId& volume);
  void Forget(const NodeName& node);
  // The records as plain values, from what is stored.
  void ReadRecords();
  absl::StatusOr<Json> PatchNode(const kube::ObjectRef& at, const Json& merge);
  absl::StatusOr<Json> PatchVolume(const kube::ObjectRef& at, const Json& merge);
  absl::StatusOr<Json> PatchPodStatus(const kube::ObjectRef& at, const Json& merge);
  bool HasFailed(const Pod& pod) const { return objects_.failed.contains(pod.uid); }
  // Its object stays when it is deleted, for its Job's finalizer.
  bool AwaitsFailure(const Pod& pod) const;
  void KeepDeleted(Pod pod);
  absl::Status DeletePod(const kube::ObjectRef& at, Grace grace);

  void Ensure(const Workload& workload);
  void EnsureSoon(const Workload& workload);
  void Schedule(const PodId& id);
  void LookAfterNodes();

  World& world_;
  const Endpoint endpoint_;
  uint64_t uid_ = 0;
  Objects objects_, copy_;
  Feeds feeds_;
  ObjectStore store_{
      [this](const auto& plural, const auto& change) { feeds_.Push(plural, change, late_percent); }};
  std::map<NodeName, WorldTime> renewed_;
  std::vector<Workload> workloads_;
  std::map<VolumeId, PodId> claimed_by_;
};

}  // namespace lunkeeper::fencing::sim
