#pragma once
// Failover in a controller replica. It feeds the core (fencing/core) with the events of nodes, arrays and
// Kubernetes, and runs the core's actions. Every replica receives all events; the one with the lease acts.
//
// The core has one thread, which never blocks. Calls run on other threads and end by a deadline, so a slow
// array or API server delays nothing else. A write to Kubernetes is dropped if this replica no longer leads
// when the write's turn comes. Nothing fails for good: a failure is logged, and the core asks again.
// Thread-safe; the destructor releases the lease and joins all threads. `arrays` and `client` outlive it.

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/metrics.h"
#include "base/tcp_prober.h"
#include "devices/array/arrays.h"
#include "fencing/core/event.h"
#include "fencing/core/settings.h"
#include "fencing/failover/array_uses.h"
#include "fencing/kube/kube_client.h"
#include "fencing/kube/lease.h"
#include "fencing/protocol/heartbeat_sink.h"

namespace lunkeeper::fencing {

// Deletions of pods that run at once. Those of a node must all reach the API server before the work that
// follows from them, as making and starting the replacements takes the server's processors, too.
constexpr size_t kDeletionsAtOnce = 64;
// Beside them, deletions that had too little time before, and have more now: what is hopeless keeps no other
// pod waiting.
constexpr size_t kSlowDeletionsAtOnce = 64;
// Other calls to the API server. They have their own workers, as a webhook may hold many deletions for long.
constexpr size_t kOtherCallsAtOnce = 16;
// What a failover waits for and no webhook may hold, and what can wait and may be held of many nodes at once.
constexpr size_t kReadsAtOnce = 8;
constexpr size_t kPluginTaintsAtOnce = 4;
// Connections for these calls, for the lease and for an event, so that none waits for another. A read takes
// two.
constexpr size_t kConnections =
    kDeletionsAtOnce + kSlowDeletionsAtOnce + kOtherCallsAtOnce + 2 * kReadsAtOnce + kPluginTaintsAtOnce + 2;

struct FailoverOptions {
  Settings settings;
  std::string self;  // this replica in the lease: unique for each start of a process
  kube::LeaseName lease;
  // What is known of this machine, such as a token, has to be proven anew: its Node was deleted, or a fence
  // of it has begun. Called on failover's thread; never blocks. Empty: nobody wants to know.
  std::function<void(const std::string& machine)> distrust = {};
  // Asks the other replicas whether they hear a node, or, with an empty one, what they see. Calls `answered`
  // once, after 200 ms or, without a node, a second at the latest or a little later, on any thread. Never
  // blocks. Empty: there are no others.
  std::function<void(const NodeId& node, std::function<void(const ReplicaVotes&)> answered)> ask_replicas =
      {};
  // The arrays that an operator removed, of which `arrays` has none. Called often, on any thread; never
  // blocks. Empty: nobody removes any.
  std::function<std::set<std::string>()> removed_arrays = {};
  Executor& executor = RealExecutor();
  std::function<std::unique_ptr<Prober>()> make_prober = MakeProber;
};

enum class PodUse { kUnknown, kNone, kSome };
struct KnownUse {
  PodUse use = PodUse::kUnknown;
  std::vector<std::string> names = {};  // with kNone: the PersistentVolumes that are known to have it
  bool knows_names = true;              // false: it may be one of another name, too
};

class Failover : public HeartbeatSink {
 public:
  // Sets the metrics soon, on failover's own thread. `metrics` outlives this object.
  virtual void ReportMetrics(Metrics& metrics) = 0;
  // From now on, without a restart; see Core::ChangeSettings.
  virtual void ChangeSettings(const Settings& settings) = 0;
  // The lines of `lunkeeper status`: which replica leads, each node's classification and why, and the fences.
  virtual std::vector<std::string> ReportStatus() = 0;
  // Who uses the volumes of an array, configured or removed. UNAVAILABLE: failover does not answer.
  virtual absl::StatusOr<std::vector<VolumeUse>> ListUses(const std::string& array) = 0;
  // Whether a pod on the machine has a claim of the volume. None: every watch has stood for ten seconds, and
  // there is no such pod; or, without names, failover does not answer.
  virtual KnownUse FindUse(const std::string& machine, const VolumeId& volume) = 0;
};

std::unique_ptr<Failover> StartFailover(const FailoverOptions& options, lunkeeper::Arrays& arrays,
                                        kube::KubeClient& client);

}  // namespace lunkeeper::fencing
