#pragma once
// Says whose a bearer token is. The real one asks the Kubernetes API server (kube_token_reviewer.h); tests
// have one with fixed keys. Thread-safe; a call may block, within a time of its own. Failure:
// UNAUTHENTICATED, the token is no good (the message says why and never quotes it); anything else, it could
// not be reviewed.

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lunkeeper {

struct TokenIdentity {
  std::string account;  // system:serviceaccount:<namespace>:<name>
  std::string node;     // the machine of the pod that it is bound to; empty: it is not bound
  absl::Time expires;
};

class TokenReviewer {
 public:
  virtual ~TokenReviewer() = default;
  // UNAUTHENTICATED also when it is not meant for `audience`.
  virtual absl::StatusOr<TokenIdentity> Review(const std::string& token, const std::string& audience) = 0;
};

}  // namespace lunkeeper
