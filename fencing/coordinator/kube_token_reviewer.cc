#include "fencing/coordinator/kube_token_reviewer.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "fencing/kube/token_review.h"

namespace lunkeeper {
namespace {

// A node's call waits behind the review, and a node tries the next replica after a failure.
constexpr absl::Duration kReviewTime = absl::Seconds(5);

class KubeTokenReviewer final : public TokenReviewer {
 public:
  explicit KubeTokenReviewer(kube::KubeClient& client) : client_(client) {}

  absl::StatusOr<TokenIdentity> Review(const std::string& token, const std::string& audience) override {
    ASSIGN_OR_RETURN(const absl::Time expires, ExpiryOf(token));
    const absl::StatusOr<kube::ReviewedToken> identity =
        kube::ReviewToken(client_, token, audience, absl::Now() + kReviewTime);
    if (identity.ok()) return TokenIdentity{identity->user, identity->node, expires};
    if (absl::IsUnauthenticated(identity.status())) return identity.status();
    // Whatever went wrong here, another replica may still reach the API server; UNAVAILABLE sends the node
    // there.
    return absl::UnavailableError(identity.status().message());
  }

 private:
  kube::KubeClient& client_;
};

}  // namespace

absl::StatusOr<absl::Time> ExpiryOf(const std::string& token) {
  // header.payload.signature, each in base64url (RFC 7515, 3.1).
  const size_t first = token.find('.');
  const size_t second = token.find('.', first + 1);
  std::string payload;
  if (first == std::string::npos || second == std::string::npos ||
      !absl::WebSafeBase64Unescape(token.substr(first + 1, second - first - 1), &payload)) {
    return absl::UnauthenticatedError("the caller's token: it is no JSON web token");
  }
  const auto claims = nlohmann::json::parse(payload, nullptr, /*allow_exceptions=*/false);
  if (!claims.is_object() || !claims.contains("exp") || !claims["exp"].is_number_integer()) {
    return absl::UnauthenticatedError("the caller's token: it has no end; it must be a bound one");
  }
  return absl::FromUnixSeconds(claims["exp"].get<int64_t>());
}

std::unique_ptr<TokenReviewer> MakeKubeTokenReviewer(kube::KubeClient& client) {
  return std::make_unique<KubeTokenReviewer>(client);
}

}  // namespace lunkeeper
