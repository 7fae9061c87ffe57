#pragma once
// Says who owns a bearer token. The real one asks the Kubernetes API server (kube_token_reviewer.h); tests
// use one with fixed tokens. Thread-safe; a call may block for a few seconds. Failure: UNAUTHENTICATED, the
// token is not valid (the message says why and never quotes it); anything else, it could not be reviewed.

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lunkeeper {

struct TokenIdentity {
  std::string account;  // system:serviceaccount:<namespace>:<name>
  std::string node;     // the machine of the pod to which the token is bound; empty: it is not bound
  absl::Time expires;
};

class TokenReviewer {
 public:
  virtual ~TokenReviewer() = default;
  // UNAUTHENTICATED also for a token that was issued for another audience.
  virtual absl::StatusOr<TokenIdentity> Review(const std::string& token, const std::string& audience) = 0;
};

}  // namespace lunkeeper
