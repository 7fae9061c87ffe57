#include "fencing/coordinator/authenticator.h"

#include <openssl/sha.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr size_t kLongestToken = 16 << 10;

std::string Sha256(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return {reinterpret_cast<const char*>(digest), sizeof digest};
}

absl::Status Refused(const std::string& why) {
  return absl::UnauthenticatedError(absl::StrCat("the caller's token: ", why));
}

}  // namespace

absl::StatusOr<Authenticator::Caller> Authenticator::Authenticate(const std::string& token) {
  if (token.empty()) return Refused("there is none; send it as `authorization: Bearer …`");
  if (token.size() > kLongestToken) return Refused("it is longer than any token is");
  const Digest digest = Sha256(token);
  if (absl::StatusOr<Caller> caller = Find(digest); caller.ok()) return caller;
  ASSIGN_OR_RETURN(const TokenIdentity identity, reviewer_.Review(token, expected_.audience));
  RETURN_IF_ERROR(Check(identity));
  const Caller caller{identity.node, identity.expires};
  Remember(digest, caller);
  return caller;
}

absl::Status Authenticator::Check(const TokenIdentity& identity) const {
  if (identity.expires <= absl::Now()) return Refused("it has expired; it must be read from its file again");
  if (identity.account != expected_.account) {
    return Refused(absl::StrCat("it is of ", identity.account, ", and only ", expected_.account,
                                " may ask for volumes"));
  }
  if (identity.node.empty()) {
    return Refused("it names no node; it must be bound to a pod, by Kubernetes 1.30 or later");
  }
  return absl::OkStatus();
}

absl::StatusOr<Authenticator::Caller> Authenticator::Find(const Digest& digest) {
  absl::MutexLock lock(&mutex_);
  const auto found = callers_.find(digest);
  if (found == callers_.end() || found->second.expires <= absl::Now())
    return absl::NotFoundError("not remembered");
  return found->second;
}

void Authenticator::Remember(const Digest& digest, const Caller& caller) {
  absl::MutexLock lock(&mutex_);
  if (!callers_.emplace(digest, caller).second) return;  // another call with the same token came first
  by_expiry_.emplace(caller.expires, digest);
  const absl::Time now = absl::Now();
  while (!by_expiry_.empty() && (by_expiry_.begin()->first <= now || callers_.size() > most_remembered_)) {
    callers_.erase(by_expiry_.begin()->second);
    by_expiry_.erase(by_expiry_.begin());
  }
}

}  // namespace lunkeeper
