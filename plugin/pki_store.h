#pragma once
// Where a cluster keeps the certificates that it makes for itself: the authority with its keys in a Secret
// that nothing mounts, each leaf in a Secret of its own for the program that shows it, and what to trust in a
// ConfigMap for nodes. A plain function, thread-safe as the client is.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"
#include "plugin/cluster_pki.h"

namespace lunkeeper {

struct LeafSecret {
  std::string secret;  // of the type kubernetes.io/tls
  CertificateUse use = CertificateUse::kServer;
  std::string name;  // the DNS name in the certificate
};

// Names of objects, all in one namespace.
struct PkiNames {
  std::string space;
  std::string authority;  // Secret
  std::string trust;      // ConfigMap; empty: there is nobody who only trusts
  std::vector<LeafSecret> leaves;
};

// Reads them, renews what has to be and stores it; what is good is not written. May be repeated, and run
// twice at a time: ABORTED and ALREADY_EXISTS say that another has stored at the same moment. What was stored
// before a failure is used by the next call.
absl::Status RenewStoredPki(kube::KubeClient& client, const PkiNames& names, const PkiOptions& options,
                            absl::Time now, const kube::Limits& limits);

}  // namespace lunkeeper
