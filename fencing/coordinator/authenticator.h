#pragma once
// Which machine a caller speaks for, by its token. A token that was found good is remembered until it
// expires, so that a mount needs no API server; never the token itself, only its SHA-256. Bounded: when too
// many are remembered, the one that expires first is forgotten, and is reviewed again when it comes.
// Thread-safe; blocks only for a token that is not remembered. `reviewer` outlives it. Failure:
// UNAUTHENTICATED, with what is wrong; UNAVAILABLE, the token could not be reviewed.

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "fencing/coordinator/token_reviewer.h"

namespace lunkeeper {

// Any pod may ask for a token with our audience, so the account counts as well.
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
  absl::StatusOr<Caller> Find(const Digest& digest);
  void Remember(const Digest& digest, const Caller& caller);
  absl::Status Check(const TokenIdentity& identity) const;

  TokenReviewer& reviewer_;
  const NodeAccount expected_;
  const size_t most_remembered_;
  absl::Mutex mutex_;
  std::map<Digest, Caller> callers_ ABSL_GUARDED_BY(mutex_);
  std::multimap<absl::Time, Digest> by_expiry_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
