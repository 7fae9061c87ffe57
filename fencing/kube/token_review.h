#pragma once
// Who is it that shows this service account token? Asked of the API server, which alone can tell (the token
// may be forged, expired, or bound to a pod that is gone). Stateless, thread-safe, repeatable. The token is
// in no error.

#include <string>

#include "absl/status/statusor.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

struct TokenIdentity {
  std::string user;  // system:serviceaccount:<namespace>:<name>
  // What the token is bound to; empty where it is not.
  std::string pod, pod_uid;
  std::string node, node_uid;  // Kubernetes 1.30 and later
};

// UNAUTHENTICATED when the token is not good, or not for `audience`.
absl::StatusOr<TokenIdentity> ReviewToken(KubeClient& client, const std::string& token,
                                          const std::string& audience, const Limits& limits);

}  // namespace lunkeeper::kube
