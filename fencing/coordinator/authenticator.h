#pragma once
// Finds out by its token which machine a caller speaks for. An accepted token is remembered until it expires,
// so that a mount does not depend on the API server; when it is used again five minutes after its review, it
// is reviewed again in the background, and forgotten if it has become bad. What is stored is the token's
// SHA-256, never the token. The memory is bounded: when it is full, the entry that expires first goes, and
// that token is reviewed again with its next call. A machine has a share of it: root there can get itself any
// number of good tokens, which end later than those of others.
//
// Strangers cost little: a refused token is remembered for some seconds, and only so many reviews for one
// address may be under way.
//
// Thread-safe; only Review blocks. `reviewer` outlives it. Failure: UNAUTHENTICATED with the reason;
// UNAVAILABLE, the token could not be reviewed; RESOURCE_EXHAUSTED, too many reviews for this address, try
// again or elsewhere.

#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "fencing/coordinator/token_reviewer.h"

namespace lunkeeper {

// Whose tokens are accepted. The audience is not enough: any pod may request a token for any audience.
struct NodeAccount {
  std::string audience;
  std::string account;  // system:serviceaccount:<namespace>:<name> of the node plugin
};

struct AuthenticatorLimits {
  size_t most_remembered = 50'000, most_of_machine = 16, most_refused = 4096;
  size_t reviews_per_address = 4;
  absl::Duration review_again = absl::Minutes(5), refused_for = absl::Seconds(10);
};

class Authenticator {
 public:
  Authenticator(TokenReviewer& reviewer, NodeAccount expected, AuthenticatorLimits limits = {})
      : reviewer_(reviewer), expected_(std::move(expected)), limits_(limits) {}
  ~Authenticator() {
    again_.stop();
    again_.join();
  }

  struct Caller {
    std::string node;  // the machine's name
    absl::Time expires;
  };
  // The right to have one token reviewed, until it is destroyed.
  using ReviewPlace = std::shared_ptr<void>;

  // Without asking anybody. Nothing: the token has to be reviewed.
  std::optional<absl::StatusOr<Caller>> RecallCaller(absl::string_view token);
  absl::StatusOr<ReviewPlace> TakeReviewPlace(const std::string& address);
  absl::StatusOr<Caller> ReviewCaller(const std::string& token, const ReviewPlace& place);
  // All three.
  absl::StatusOr<Caller> Authenticate(const std::string& token, const std::string& address);
  // Has all tokens of a machine reviewed anew, those of its open streams too: its Node was deleted, or it was
  // fenced by hand.
  void ForgetMachine(const std::string& node);

 private:
  using Digest = std::string;
  // Of what is this program's own to time. A token's end is a time of day, which its issuer has set.
  using SteadyTime = std::chrono::steady_clock::time_point;
  static SteadyTime In(absl::Duration time) {
    return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
  }
  struct Remembered {
    Caller caller;
    SteadyTime review_at;
  };
  struct Refused {
    absl::Status why;
    SteadyTime until;
  };
  absl::StatusOr<Caller> AskReviewer(const std::string& token);
  using Callers = std::map<Digest, Remembered>;
  using ByExpiry = std::set<std::pair<absl::Time, Digest>>;
  void RememberCaller(const Digest& digest, const Caller& caller);
  void ForgetCaller(Callers::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RememberRefusal(const Digest& digest, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReviewAgain(const Digest& digest, const std::string& token);
  absl::Status CheckIdentity(const TokenIdentity& identity) const;

  TokenReviewer& reviewer_;
  const NodeAccount expected_;
  const AuthenticatorLimits limits_;
  absl::Mutex mutex_;
  Callers callers_ ABSL_GUARDED_BY(mutex_);
  ByExpiry by_expiry_ ABSL_GUARDED_BY(mutex_);                          // of callers_
  std::map<std::string, ByExpiry> by_machine_ ABSL_GUARDED_BY(mutex_);  // likewise
  std::map<Digest, Refused> refused_ ABSL_GUARDED_BY(mutex_);
  std::deque<Digest> refused_first_ ABSL_GUARDED_BY(mutex_);       // the keys of refused_, oldest first
  std::map<std::string, size_t> reviews_ ABSL_GUARDED_BY(mutex_);  // under way, by address
  boost::asio::thread_pool again_{1};                              // last: its work uses the others
};

}  // namespace lunkeeper
