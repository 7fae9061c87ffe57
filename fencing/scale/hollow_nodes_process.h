#pragma once
// The simulated cluster in a process of its own, so that what is measured is the controller alone. To be made
// while this process has no other thread. The destructor ends it. ReadHeartbeats: one thread; the rest:
// another.

#include <sys/types.h>

#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "fencing/kube/config.h"
#include "fencing/scale/hollow_cluster.h"

namespace lunkeeper::fencing {

class HollowNodesProcess {
 public:
  explicit HollowNodesProcess(const HollowClusterSize& size);
  ~HollowNodesProcess();
  HollowNodesProcess(const HollowNodesProcess&) = delete;
  HollowNodesProcess& operator=(const HollowNodesProcess&) = delete;

  const kube::KubeConfig& config() const { return config_; }
  // Whose heartbeats are due now, by number; waits for the next ones. Empty: there are no more.
  std::vector<int> ReadHeartbeats();
  void EndHeartbeats();

  // From the last heartbeat to the decision, as the API server sees it, and from there to the last pod's
  // deletion.
  struct Times {
    absl::Duration decided, moved;
  };
  // Takes the power of a machine right after a heartbeat. None: its pods were not moved within a minute.
  std::optional<Times> PowerOff(int node);

 private:
  pid_t pid_ = -1;
  int heartbeats_ = -1, control_ = -1;
  kube::KubeConfig config_;
};

}  // namespace lunkeeper::fencing
