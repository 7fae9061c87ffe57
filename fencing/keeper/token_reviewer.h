#pragma once
// Says whose a bearer token is. The real one asks the Kubernetes API server (TokenReview); tests have one
// with fixed keys. Thread-safe; a call may block, within a time of its own. Failure: UNAUTHENTICATED, the
// token is no good (the message says why and never quotes it); UNAVAILABLE, nobody could be asked.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lunkeeper {

struct TokenIdentity {
  std::string account;                 // system:serviceaccount:<namespace>:<name>
  std::string node;                    // the machine that the pod it is bound to runs on
  std::string pod;                     // for people
  std::vector<std::string> audiences;  // whom it is meant for
  absl::Time expires;
};

class TokenReviewer {
 public:
  virtual ~TokenReviewer() = default;
  virtual absl::StatusOr<TokenIdentity> Review(const std::string& token) = 0;
};

}  // namespace lunkeeper
