#pragma once
// A coordination.k8s.io/v1 Lease: who leads. Only the reading and the conditional writing; when to do which
// is decided in fencing/core/election.h. Stateless functions, thread-safe as the client is. Repetition: a
// write whose answer was lost fails with ABORTED the second time; read to see who holds it.

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

struct LeaseName {
  std::string space, name;
};

struct Lease {
  std::string holder;   // empty: nobody
  std::string version;  // empty: there is no such object yet
  int64_t transitions = 0;
};

// What has no object reads as held by nobody.
absl::StatusOr<Lease> ReadLease(KubeClient& client, const LeaseName& name, const Limits& limits);

// Takes the lease, renews it or (an empty holder) gives it up, if it still is as it was `seen`. Returns it as
// it is now. ABORTED or ALREADY_EXISTS: someone else wrote it since.
absl::StatusOr<Lease> WriteLease(KubeClient& client, const LeaseName& name, const Lease& seen,
                                 const std::string& holder, absl::Duration duration, absl::Time now,
                                 const Limits& limits);

}  // namespace lunkeeper::kube
