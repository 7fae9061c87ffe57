#pragma once
// Tokens reviewed by the Kubernetes API server. Thread-safe. `client` outlives it. A token without an end is
// refused: bound ones have one.

#include <memory>

#include "fencing/coordinator/token_reviewer.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper {

std::unique_ptr<TokenReviewer> MakeKubeTokenReviewer(kube::KubeClient& client);

// When a JSON web token ends (RFC 7519, 4.1.4), without looking at its signature. UNAUTHENTICATED: it is no
// such token, or has no end.
absl::StatusOr<absl::Time> ExpiryOf(const std::string& token);

}  // namespace lunkeeper
