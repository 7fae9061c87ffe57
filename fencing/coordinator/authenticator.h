#pragma once
// Finds out by its token which machine a caller speaks for. An accepted token is remembered until it expires,
// so that a mount does not depend on the API server. What is stored is the token's SHA-256, never the token.
// The memory is bounded: when it is full, the entry that expires first goes, and that token is reviewed again
// with its next call. Thread-safe; blocks only for an unknown token. `reviewer` outlives it. Failure:
// UNAUTHENTICATED with the reason; UNAVAILABLE, the token could not be reviewed.

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "fencing/coordinator/token_reviewer.h"

namespace lunkeeper {

// Whose tokens are accepted. The audience is not enough: any pod may request a token for any audience.
struct NodeAccount {
  std::string audience;
  std::string account;  // system:serviceaccount:<namespace>:<name> of the node plugin
};

class Authenticator {
 public:
  Authenticator(TokenReviewer& reviewer, NodeAccount expected, size_t most_remembered = 50'000)
      : reviewer_(reviewer), expected_(std::move(expected)), most_remembered_(most_remembered) {}

  struct Caller {
    std::string node;  // the machine's name
    absl::Time expires;
  };
  absl::StatusOr<Caller> Authenticate(const std::string& token);

 private:
  using Digest = std::string;
  absl::StatusOr<Caller> FindCaller(const Digest& digest);
  void RememberCaller(const Digest& digest, const Caller& caller);
  absl::Status CheckIdentity(const TokenIdentity& identity) const;

  TokenReviewer& reviewer_;
  const NodeAccount expected_;
  const size_t most_remembered_;
  absl::Mutex mutex_;
  std::map<Digest, Caller> callers_ ABSL_GUARDED_BY(mutex_);
  std::multimap<absl::Time, Digest> by_expiry_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
