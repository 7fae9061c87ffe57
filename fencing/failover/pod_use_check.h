#pragma once
// Refuses a node a volume that no pod on it uses. Failover's object cache is asked first. Where it knows of
// no such pod, the API server is asked about this volume before anything is refused, as a watch may lag
// behind.
//
// Whatever the API server cannot say refuses nothing: a mount does not depend on it. Where failover does not
// answer, a volume whose PersistentVolume is not found by its name is UNAVAILABLE for that long. A
// refusal takes a second, and a machine has one at a time, so that nobody can keep the API server busy by
// asking; further calls wait for five seconds, and end with RESOURCE_EXHAUSTED. Thread-safe. What it is given
// outlives it.

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/executor.h"
#include "devices/array/arrays.h"
#include "fencing/failover/failover.h"
#include "fencing/kube/kube_client.h"
#include "fencing/protocol/volume_use_check.h"

namespace lunkeeper::fencing {

class PodUseCheck final : public VolumeUseCheck {
 public:
  // Failover::FindUse.
  using Cache = std::function<KnownUse(const std::string& machine, const VolumeId& volume)>;

  PodUseCheck(Cache cache, lunkeeper::Arrays& arrays, kube::KubeClient& client,
              Executor& executor = RealExecutor())
      : cache_(std::move(cache)), arrays_(arrays), client_(client), executor_(executor) {}

  absl::Status CheckUse(const std::string& machine, const VolumeId& volume) override;

 private:
  bool BeginTurn(const std::string& machine) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndTurn(const std::string& machine) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckInTurn(const std::string& machine, const VolumeId& volume);
  absl::StatusOr<bool> AskServer(const std::string& machine, const VolumeId& volume,
                                 const std::set<std::string>& names);
  absl::StatusOr<bool> IsUsedAs(const std::string& name, const std::string& machine, const VolumeId& volume,
                                const kube::Limits& limits);

  const Cache cache_;
  lunkeeper::Arrays& arrays_;
  kube::KubeClient& client_;
  Executor& executor_;
  absl::Mutex mutex_;
  // Of each machine with a call whose turn it is, the calls that wait for theirs.
  std::map<std::string, std::deque<Signal*>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper::fencing
