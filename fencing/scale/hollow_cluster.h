#pragma once
// A large cluster of hollow nodes (kubemark's word) for the scale benchmark: they look real to the API's
// clients, and run nothing. The API server speaks real TLS and makes objects of ordinary size from templates
// when they are requested. Kubelets renew their leases, nodes and pods report their status, deleted pods run
// elsewhere. A node that loses power falls silent in all of that, and its kernel no longer answers.
// Thread-safe; the destructor ends every connection.

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "devices/types.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {

struct HollowClusterSize {
  int nodes = 10'000;
  int pods_per_node = 10;
  int volumes_per_node = 3;  // each of another pod
  int arrays = 10;
  int pods() const { return nodes * pods_per_node; }
  int volumes() const { return nodes * volumes_per_node; }
  int PodOf(int volume) const {
    return volume / volumes_per_node * pods_per_node + volume % volumes_per_node;
  }
  bool HasVolume(int pod) const { return pod % pods_per_node < volumes_per_node; }
};

// Nodes, pods and volumes are known by their numbers: pod p runs on node p / pods_per_node at first, and the
// volumes of a node are its first pods'.
NodeId HollowNode(int node);
std::string HollowArrayName(int array);
VolumeId HollowVolume(const HollowClusterSize& size, int volume);

class HollowCluster {
 public:
  explicit HollowCluster(const HollowClusterSize& size);
  ~HollowCluster();

  kube::KubeConfig Config() const { return api_.Config(); }
  void PowerOff(int node);
  bool IsOff(int node) const { return off_at_[static_cast<size_t>(node)] != 0; }
  // When its NodeFence was made, and when its last pod was deleted; the infinite past: not yet.
  struct FailoverTimes {
    absl::Time decided = absl::InfinitePast(), moved = absl::InfinitePast();
  };
  FailoverTimes TimesOf(int node) const;

 private:
  // Kinds of which there are many.
  struct Kind {
    std::string path;
    int count = 0;
    absl::Duration round;                  // in which each object changes once; infinite: they do not
    bool of_nodes = false;                 // and not while the machine is off
    std::function<std::string(int)> text;  // JSON of one, by its number
  };
  struct Change {
    int64_t version = 0;
    std::string kind, line;
  };

  bool AnswerRequest(kube::Exchange& exchange);
  void SendList(kube::Exchange& exchange, const Kind& kind);
  void SendWatch(kube::Exchange& exchange, const Kind& kind);
  bool SendWrites(kube::Exchange& exchange, const Kind& kind, int64_t& seen);
  // Where the last watch of that kind ended, so that nothing is left out; `now` if there was none lately.
  absl::Time ResumeAt(const Kind& kind, absl::Time now);
  // What changes by itself from `at` on, for one step.
  void SendStatus(kube::Exchange& exchange, const Kind& kind, absl::Time at);
  void DeletePod(kube::Exchange& exchange);
  void SwallowConnects(int node);
  void OnWrite(const std::string& write);
  std::string PodText(int pod);
  // When its kubelet last renewed its lease, as of the next step of a watch.
  absl::Time RenewedAt(int node) const;
  std::string Version() { return std::to_string(++version_); }

  const HollowClusterSize size_;
  const uint16_t kubelet_port_;
  std::vector<Kind> kinds_;
  std::vector<std::atomic<int64_t>> off_at_;  // in microseconds; 0: it is on
  std::atomic<int64_t> version_ = 1000;
  std::atomic<bool> stopping_ = false;
  mutable absl::Mutex mu_;
  std::vector<Change> writes_ ABSL_GUARDED_BY(mu_);
  std::map<int, int> incarnations_ ABSL_GUARDED_BY(mu_);  // of pods that were deleted: how often
  std::map<int, FailoverTimes> failover_times_ ABSL_GUARDED_BY(mu_);
  std::map<int, int> deleted_ ABSL_GUARDED_BY(mu_);                        // by node
  std::map<std::string, absl::Time> reported_until_ ABSL_GUARDED_BY(mu_);  // up to when, of each kind
  std::vector<int> sockets_ ABSL_GUARDED_BY(mu_);
  FakeApi api_;  // last: its threads use the others
};

}  // namespace lunkeeper::fencing
