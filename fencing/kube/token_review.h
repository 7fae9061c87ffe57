#pragma once
// Asks the API server who owns a service account token. Only the API server can tell whether a token is
// forged, expired, or bound to a deleted pod. Stateless, thread-safe, repeatable. No error quotes the token.

#include <string>

#include "absl/status/statusor.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

struct ReviewedToken {
  std::string user;  // system:serviceaccount:<namespace>:<name>
  // The objects to which the token is bound; empty: it is not bound to one of that kind.
  std::string pod, pod_uid;
  std::string node, node_uid;  // Kubernetes 1.30 and later
};

// UNAUTHENTICATED: the token is not valid, or not meant for `audience`.
absl::StatusOr<ReviewedToken> ReviewToken(KubeClient& client, const std::string& token,
                                          const std::string& audience, const Limits& limits);

}  // namespace lunkeeper::kube
