#pragma once
// Failover in a controller replica: the core (fencing/core), fed with what nodes, arrays and Kubernetes say,
// and whatever it asks for carried out. Every replica takes everything in; the one that holds the lease acts.
//
// The core has one thread, which never waits: calls are made on others, so that a slow array or API server
// holds nothing else up, each ends by a deadline, and each write to Kubernetes is dropped if this replica
// leads no more when its turn comes. Nothing fails for good: what does is logged, and the core asks again.
// Thread-safe; the destructor gives the lease up and joins everything. `arrays` and `client` outlive it.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "devices/array/arrays.h"
#include "fencing/core/settings.h"
#include "fencing/kube/kube_client.h"
#include "fencing/kube/lease.h"
#include "fencing/protocol/heartbeat_sink.h"

namespace lunkeeper::fencing {

// So many that the deletions of a node's pods reach the API server before the work that comes of them: what
// makes and starts the replacements takes its processors too.
constexpr size_t kActionsAtOnce = 64;
// Connections for them, the lease and an event, none of which waits for another.
constexpr size_t kConnections = kActionsAtOnce + 2;

struct FailoverOptions {
  Settings settings;
  std::string self;  // this replica in the lease: unique for each start of a process
  kube::LeaseName lease;
};

class Failover : public HeartbeatSink {
 public:
  // Sets its metrics soon, on a thread of its own; they outlive it.
  virtual void ReportMetrics(Metrics& metrics) = 0;
  // For `lunkeeper status`, a line each: who leads, what each node is and why, what is fenced.
  virtual std::vector<std::string> Status() = 0;
};

std::unique_ptr<Failover> StartFailover(const FailoverOptions& options, lunkeeper::Arrays& arrays,
                                        kube::KubeClient& client);

}  // namespace lunkeeper::fencing
