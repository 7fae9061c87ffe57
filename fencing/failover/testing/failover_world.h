#pragma once
// A cluster for tests of failover as a whole: nodes that send heartbeats, an array and an API server in
// memory, and the replicas that a test starts. Thread-safe.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/periodic.h"
#include "devices/array/testing/fake_array.h"
#include "fencing/failover/failover.h"
#include "fencing/failover/record.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {

using kube::FieldAt;
using kube::Json;
using kube::TextAt;

inline constexpr char kRecords[] = "/apis/lunkeeper.io/v1alpha1/nodefences";

inline std::string NodePath(const std::string& name) { return "/api/v1/nodes/" + name; }
inline std::string PodPath(const std::string& name) { return "/api/v1/namespaces/db/pods/" + name; }
inline std::string RecordPath(const NodeId& node) { return absl::StrCat(kRecords, "/", node.value()); }

// Five nodes; a database on the first.
class FailoverWorld {
 public:
  FailoverWorld();
  ~FailoverWorld();

  void AddNode(const std::string& name);
  static NodeId IdOf(const std::string& name) { return NodeId(name + ".00000000000000aa"); }

  // A StatefulSet's pod with volumes of ours, granted to its node. Returns the first.
  VolumeId AddPod(const std::string& name, const std::string& node, int count = 1);

  Failover& Start(const std::string& name = "replica-1", Settings settings = {});
  // Whether one has led for long enough to act: it has renewed its lease.
  bool IsLed() const { return api.CountWrites("PATCH /apis/coordination.k8s.io") > 2; }
  // As Start gives them to its replica.
  static Settings Adapt(Settings settings);
  void StopReplica(size_t index) {
    std::unique_ptr<Failover> gone;
    absl::MutexLock lock(&mutex);
    gone.swap(replicas[index]);
  }

  // From now on its heartbeats land on the array, or do so no more.
  void HeartbeatOnArray(const std::string& name, bool lands) {
    absl::MutexLock lock(&mutex);
    landing[name] = lands;
  }

  void SetDevices(const std::string& name, const VolumeSet& volumes) {
    absl::MutexLock lock(&mutex);
    devices[name] = volumes;
  }
  // The heartbeats of the node do not reach the replica of that index any more.
  void CutOff(size_t replica, const std::string& node) {
    absl::MutexLock lock(&mutex);
    cut.emplace(replica, node);
  }
  // Replicas that are started from now on ask each other what they see. Of nodes they hear nothing.
  void LetReplicasAsk();

  // Half a second's heartbeats of all nodes, to all replicas.
  void Heartbeat();
  // Its plugin alone sends no heartbeats, or does so again.
  void SetHeard(const std::string& name, bool heard) {
    absl::MutexLock lock(&mutex);
    heartbeating[name] = heard;
  }
  // The machine is gone, and its kubelet's lease with it.
  void PowerOff(const std::string& name);
  void PowerOn(const std::string& name);

  bool Runs(const std::string& pod, const std::string& node) {
    return TextAt(api.Get(PodPath(pod)), {"spec", "nodeName"}) == node;
  }
  bool IsFenced(const std::string& node);
  bool Holds(const std::string& node, const VolumeId& volume) {
    const auto grants = array->ListGrants({volume, IdOf(node)});
    return !grants.ok() || !grants->empty();
  }
  std::string TaintOf(const std::string& node);
  // Empty: nobody leads.
  std::string LeaseHolder() const;
  // Whether `kubectl describe lease` shows an event of this text.
  bool IsOnLease(const std::string& text) const;
  std::vector<std::string> Distrusted() {
    absl::MutexLock lock(&distrusted_mutex);
    return distrusted;
  }

  std::shared_ptr<FakeArray> array = std::make_shared<FakeArray>();
  std::unique_ptr<lunkeeper::Arrays> arrays = MakeOneArray("fake", array);
  std::function<void(const std::string&)> on_write = [](const std::string&) {};
  FakeApi api{[this](const std::string& write) { on_write(write); }};
  std::vector<std::unique_ptr<kube::KubeClient>> clients;
  decltype(FailoverOptions::ask_replicas) ask_replicas;  // of replicas that are started from now on
  decltype(FailoverOptions::removed_arrays) removed_arrays;
  absl::Mutex distrusted_mutex;
  std::vector<std::string> distrusted;
  absl::Mutex mutex;
  std::vector<std::unique_ptr<Failover>> replicas;
  std::set<std::pair<size_t, std::string>> cut;
  std::map<std::string, bool> heartbeating, landing;
  std::map<std::string, VolumeSet> devices;  // by node, as its heartbeats say
  std::map<std::string, std::map<ArrayId, Generation>> known;
  uint64_t sequence = 0;
  Periodic heartbeats{absl::Milliseconds(200), [this] { Heartbeat(); }};
};

// Arrays of which one may be taken out of the configuration.
class ChangingArrays final : public lunkeeper::Arrays {
 public:
  explicit ChangingArrays(std::vector<NamedArray> arrays) : arrays_(std::move(arrays)) {}
  std::vector<NamedArray> ListArrays() override {
    absl::MutexLock lock(&mutex_);
    return arrays_;
  }
  void RemoveLast() {
    absl::MutexLock lock(&mutex_);
    arrays_.pop_back();
  }

 private:
  absl::Mutex mutex_;
  std::vector<NamedArray> arrays_ ABSL_GUARDED_BY(mutex_);
};

// The world's own array and another one, which may be removed.
ChangingArrays& AddArray(FailoverWorld& world, std::shared_ptr<FakeArray> spare);

// Whether a line of the status that begins with `about` contains `what`.
bool Says(Failover& failover, const std::string& about, const std::string& what);

// Waits for the condition; false: it did not come in time.
bool Comes(const std::function<bool()>& condition, absl::Duration limit = absl::Seconds(40));

}  // namespace lunkeeper::fencing
