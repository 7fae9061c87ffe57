#pragma once
// Reads and conditionally writes a coordination.k8s.io/v1 Lease, which says which replica leads. When to do
// which is decided in fencing/core/election.h. Stateless functions, thread-safe as the client is. Repetition:
// after a write whose answer was lost, a second write fails with ABORTED; read the lease to see who holds it.

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

inline constexpr char kLeaseKind[] = "Lease";

struct LeaseName {
  std::string space, name;
};

struct Lease {
  std::string holder;   // empty: nobody
  std::string version;  // empty: there is no such object yet
  int64_t transitions = 0;
  std::string uid = {};  // empty: there is no such object yet
};

// A lease that does not exist reads as held by nobody.
absl::StatusOr<Lease> ReadLease(KubeClient& client, const LeaseName& name, const Limits& limits);

// Takes the lease, renews it or (with an empty holder) releases it, provided that it is still as `seen`.
// Returns the lease as stored. ABORTED or ALREADY_EXISTS: someone else wrote it since.
absl::StatusOr<Lease> WriteLease(KubeClient& client, const LeaseName& name, const Lease& seen,
                                 const std::string& holder, absl::Duration duration, absl::Time now,
                                 const Limits& limits);

}  // namespace lunkeeper::kube
