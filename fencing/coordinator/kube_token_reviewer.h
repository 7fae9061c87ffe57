#pragma once
// Has tokens reviewed by the Kubernetes API server. Thread-safe. `client` outlives it. Only bound tokens are
// accepted; those expire, so a token without an expiry time is refused.

#include <memory>

#include "fencing/coordinator/token_reviewer.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper {

std::unique_ptr<TokenReviewer> MakeKubeTokenReviewer(kube::KubeClient& client);

// When a JSON web token expires (RFC 7519, 4.1.4). Its signature is not verified: the API server does that.
// UNAUTHENTICATED: it is no JSON web token, or never expires.
absl::StatusOr<absl::Time> ExpiryOf(const std::string& token);

}  // namespace lunkeeper
