#include "fencing/coordinator/authenticator.h"

#include <openssl/sha.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Kubernetes' service account tokens have about 1 KiB. The limit bounds what a stranger can make us hash.
constexpr size_t kLongestToken = 16 << 10;

// Also hides the token's content from timing: the map compares digests, which a caller cannot choose.
std::string DigestOf(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return {reinterpret_cast<const char*>(digest), sizeof digest};
}

absl::Status RefuseToken(const std::string& why) {
  return absl::UnauthenticatedError(absl::StrCat("the caller's token: ", why));
}

}  // namespace

absl::StatusOr<Authenticator::Caller> Authenticator::Authenticate(const std::string& token) {
  if (token.empty()) return RefuseToken("there is none; send it as `authorization: Bearer …`");
  if (token.size() > kLongestToken) return RefuseToken("it is longer than any token is");
  const Digest digest = DigestOf(token);
  if (absl::StatusOr<Caller> caller = FindCaller(digest); caller.ok()) return caller;
  // Without the mutex: a review takes seconds when the API server is slow. Two calls with the same new token
  // may both be reviewed, which does no harm.
  ASSIGN_OR_RETURN(const TokenIdentity identity, reviewer_.Review(token, expected_.audience));
  RETURN_IF_ERROR(CheckIdentity(identity));
  const Caller caller{identity.node, identity.expires};
  RememberCaller(digest, caller);
  return caller;
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

absl::StatusOr<Authenticator::Caller> Authenticator::FindCaller(const Digest& digest) {
  absl::MutexLock lock(&mutex_);
  const auto found = callers_.find(digest);
  if (found == callers_.end() || found->second.expires <= absl::Now())
    return absl::NotFoundError("not remembered");
  return found->second;
}

void Authenticator::RememberCaller(const Digest& digest, const Caller& caller) {
  absl::MutexLock lock(&mutex_);
  if (!callers_.emplace(digest, caller).second) return;  // another call with the same token was quicker
  by_expiry_.emplace(caller.expires, digest);
  const absl::Time now = absl::Now();
  // Expired entries always go; beyond the limit also the ones that expire soonest.
  while (!by_expiry_.empty() && (by_expiry_.begin()->first <= now || callers_.size() > most_remembered_)) {
    callers_.erase(by_expiry_.begin()->second);
    by_expiry_.erase(by_expiry_.begin());
  }
}

}  // namespace lunkeeper
