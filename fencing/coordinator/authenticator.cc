// A call's way: what is remembered of its token -> a place for a review -> the API server -> remembered. The
// memory is one map by the token's digest, with two orders beside it: by when tokens end, of all machines and
// of each. All three change together, in RememberCaller and ForgetCaller alone. No review is made with the
// mutex held.

#include "fencing/coordinator/authenticator.h"

#include <openssl/sha.h>

#include <boost/asio/post.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Kubernetes' service account tokens have about 1 KiB. The limit bounds what a stranger can make us hash.
constexpr size_t kLongestToken = 16 << 10;

// When the API server does not answer, a token that was good before is good still, and tried again later.
constexpr absl::Duration kRetryReview = absl::Seconds(30);

// Also hides the token's content from timing: the map compares digests, which a caller cannot choose.
std::string DigestOf(absl::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return {reinterpret_cast<const char*>(digest), sizeof digest};
}

absl::Status RefuseToken(const std::string& why) {
  return absl::UnauthenticatedError(absl::StrCat("the caller's token: ", why));
}

}  // namespace

std::optional<absl::StatusOr<Authenticator::Caller>> Authenticator::RecallCaller(absl::string_view token) {
  if (token.empty()) return RefuseToken("there is none; send it as `authorization: Bearer …`");
  if (token.size() > kLongestToken) return RefuseToken("it is longer than any token is");
  const Digest digest = DigestOf(token);
  const SteadyTime now = std::chrono::steady_clock::now();
  const absl::MutexLock lock(&mutex_);
  const auto refused = refused_.find(digest);
  if (refused != refused_.end() && now < refused->second.until) return refused->second.why;
  const auto found = callers_.find(digest);
  if (found == callers_.end() || found->second.caller.expires <= absl::Now()) return std::nullopt;
  if (found->second.review_at <= now) {
    // So that no other call asks for the same review.
    found->second.review_at = In(kRetryReview);
    boost::asio::post(again_, [this, digest, copy = std::string(token)] { ReviewAgain(digest, copy); });
  }
  return found->second.caller;
}

absl::StatusOr<Authenticator::ReviewPlace> Authenticator::TakeReviewPlace(const std::string& address) {
  const absl::MutexLock lock(&mutex_);
  size_t& reviews = reviews_[address];
  if (reviews >= limits_.reviews_per_address)
    return absl::ResourceExhaustedError(
        "this controller reviews other tokens of this address first: try again");
  ++reviews;
  return ReviewPlace(nullptr, [this, address](void*) {
    const absl::MutexLock again(&mutex_);
    if (--reviews_[address] == 0) reviews_.erase(address);
  });
}

absl::StatusOr<Authenticator::Caller> Authenticator::ReviewCaller(const std::string& token,
                                                                  const ReviewPlace&) {
  const Digest digest = DigestOf(token);
  // Without the mutex: a review takes seconds when the API server is slow. Two calls with the same new token
  // may both be reviewed, which does no harm.
  absl::StatusOr<Caller> caller = AskReviewer(token);
  if (caller.ok()) RememberCaller(digest, *caller);
  if (absl::IsUnauthenticated(caller.status())) RememberRefusal(digest, caller.status());
  return caller;
}

absl::StatusOr<Authenticator::Caller> Authenticator::Authenticate(const std::string& token,
                                                                  const std::string& address) {
  if (auto recalled = RecallCaller(token)) return *recalled;
  ASSIGN_OR_RETURN(const ReviewPlace place, TakeReviewPlace(address));
  return ReviewCaller(token, place);
}

void Authenticator::ForgetMachine(const std::string& node) {
  const absl::MutexLock lock(&mutex_);
  for (auto own = by_machine_.find(node); own != by_machine_.end(); own = by_machine_.find(node))
    ForgetCaller(callers_.find(own->second.begin()->second));
}

absl::StatusOr<Authenticator::Caller> Authenticator::AskReviewer(const std::string& token) {
  ASSIGN_OR_RETURN(const TokenIdentity identity, reviewer_.Review(token, expected_.audience));
  RETURN_IF_ERROR(CheckIdentity(identity));
  return Caller{identity.node, identity.expires};
}

absl::Status Authenticator::CheckIdentity(const TokenIdentity& identity) const {
  if (identity.expires <= absl::Now())
    return RefuseToken("it has expired; it must be read from its file again");
  if (identity.account != expected_.account) {
    return RefuseToken(absl::StrCat("it is of ", identity.account, ", and only ", expected_.account,
                                    " may ask for volumes"));
  }
  // The node's name in the token is what keeps a node from acting for another one.
  if (identity.node.empty()) {
    return RefuseToken("it names no node; it must be bound to a pod, by Kubernetes 1.30 or later");
  }
  return absl::OkStatus();
}

void Authenticator::RememberCaller(const Digest& digest, const Caller& caller) {
  const absl::MutexLock lock(&mutex_);
  const absl::Time now = absl::Now();
  if (const auto before = callers_.find(digest); before != callers_.end()) ForgetCaller(before);
  callers_[digest] = {caller, In(limits_.review_again)};
  by_expiry_.emplace(caller.expires, digest);
  ByExpiry& own = by_machine_[caller.node];
  own.emplace(caller.expires, digest);
  // Expired entries always go; beyond the limits also the ones that expire soonest.
  if (own.size() > limits_.most_of_machine) ForgetCaller(callers_.find(own.begin()->second));
  while (!by_expiry_.empty() &&
         (by_expiry_.begin()->first <= now || callers_.size() > limits_.most_remembered))
    ForgetCaller(callers_.find(by_expiry_.begin()->second));
}

void Authenticator::ForgetCaller(Callers::iterator at) {
  const std::pair<absl::Time, Digest> entry{at->second.caller.expires, at->first};
  const auto own = by_machine_.find(at->second.caller.node);
  own->second.erase(entry);
  if (own->second.empty()) by_machine_.erase(own);
  by_expiry_.erase(entry);
  callers_.erase(at);
}

void Authenticator::RememberRefusal(const Digest& digest, const absl::Status& why) {
  const absl::MutexLock lock(&mutex_);
  if (refused_.insert_or_assign(digest, Refused{why, In(limits_.refused_for)}).second)
    refused_first_.push_back(digest);
  if (refused_.size() <= limits_.most_refused) return;
  refused_.erase(refused_first_.front());
  refused_first_.pop_front();
}

void Authenticator::ReviewAgain(const Digest& digest, const std::string& token) {
  const absl::StatusOr<Caller> caller = AskReviewer(token);
  const absl::MutexLock lock(&mutex_);
  const auto found = callers_.find(digest);
  if (found == callers_.end()) return;
  if (caller.ok()) found->second.review_at = In(limits_.review_again);
  if (!absl::IsUnauthenticated(caller.status())) return;
  LogWarn("coordinator", "a token is good no more",
          {{"node", found->second.caller.node}, {"why", std::string(caller.status().message())}});
  ForgetCaller(found);
}

}  // namespace lunkeeper
