#pragma once
// The hollow cluster in a process of its own, so that the measurement is of the controller alone. Make it
// while this process has no other thread, as it forks. The destructor ends the other process. One thread
// calls ReadHeartbeats, another the rest.

#include <sys/types.h>

#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "fencing/kube/config.h"
#include "fencing/scale/hollow_cluster.h"

namespace lunkeeper::fencing {

class HollowClusterProcess {
 public:
  explicit HollowClusterProcess(const HollowClusterSize& size);
  ~HollowClusterProcess();
  HollowClusterProcess(const HollowClusterProcess&) = delete;
  HollowClusterProcess& operator=(const HollowClusterProcess&) = delete;

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
