#pragma once
// Whether this replica can connect to the portals of an array, by the path on which nodes reach them. Of an
// array that one node alone has used nobody else can say whether the node or the array is silent.
//
// The array's agent names the portals, and is asked from time to time on a worker of the array: a slow agent
// delays no probe of known ones. One thread calls ProbeArray, which never blocks. Nothing fails: of what does
// not answer, or cannot be asked, nothing is said. What it is made of outlives it, and it outlives the hub's
// workers.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/tcp_prober.h"
#include "fencing/core/action.h"
#include "fencing/failover/array_hub.h"

namespace lunkeeper::fencing {

class PortalProbes {
 public:
  // `answered`: a portal of the array accepted a connection. Called on any thread.
  PortalProbes(ArrayHub& arrays, Prober* prober, std::function<void(const ArrayId&)> answered)
      : arrays_(arrays), prober_(prober), answered_(std::move(answered)) {}

  void ProbeArray(const ProbePortals& call, Instant now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Known {
    std::optional<Instant> asked_at;
    std::set<std::string> portals;
  };
  void AskAgent(const ProbePortals& call, Array& array) ABSL_LOCKS_EXCLUDED(mutex_);
  void ProbeAll(const ArrayId& array, const std::set<std::string>& portals);

  ArrayHub& arrays_;
  Prober* const prober_;
  const std::function<void(const ArrayId&)> answered_;
  absl::Mutex mutex_;
  std::map<ArrayId, Known> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper::fencing
