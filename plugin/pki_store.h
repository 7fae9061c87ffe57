#pragma once
// Where a cluster keeps the coordinator's certificates: the authority with its keys in a Secret that nothing
// mounts, the coordinator's certificate in a Secret for controllers, and what to trust in a ConfigMap for
// nodes. A plain function, thread-safe as the client is.

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"
#include "plugin/coordinator_pki.h"

namespace lunkeeper {

// Names of objects, all in one namespace.
struct PkiNames {
  std::string space;
  std::string authority;  // Secret
  std::string server;     // Secret of the type kubernetes.io/tls
  std::string trust;      // ConfigMap
};

// Reads them, renews what has to be and stores it; what is good is not written. May be repeated, and run
// twice at a time: ABORTED and ALREADY_EXISTS say that another has stored at the same moment. What was stored
// before a failure is used by the next call.
absl::Status RenewStoredPki(kube::KubeClient& client, const PkiNames& names, const PkiOptions& options,
                            absl::Time now, const kube::Limits& limits);

}  // namespace lunkeeper
