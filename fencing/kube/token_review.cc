#include "fencing/kube/token_review.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper::kube {
namespace {

// One value of status.user.extra, which maps each key to a list of values. Several values are not what
// Kubernetes writes for these keys, and are not trusted.
std::string ExtraOf(const Json& status, const char* key) {
  const Json& values = FieldAt(status, {"user", "extra", key});
  if (!values.is_array() || values.size() != 1 || !values[0].is_string()) return "";
  return values[0].get<std::string>();
}

}  // namespace

absl::StatusOr<ReviewedToken> ReviewToken(KubeClient& client, const std::string& token,
                                          const std::string& audience, const Limits& limits) {
  // The API server would answer 400 to an empty token, which reads like a fault of ours.
  if (token.empty()) return absl::UnauthenticatedError("review a token: there is none");
  const Json review = {{"apiVersion", "authentication.k8s.io/v1"},
                       {"kind", "TokenReview"},
                       {"spec", {{"token", token}, {"audiences", Json::array({audience})}}}};
  ASSIGN_OR_RETURN(const Json answer,
                   client.Create({{"authentication.k8s.io", "v1", "tokenreviews"}, "", ""}, review, limits));
  const Json& status = FieldAt(answer, {"status"});
  if (!FlagAt(status, {"authenticated"})) {
    return absl::UnauthenticatedError(
        absl::StrCat("review a token: the API server does not accept it: ", TextAt(status, {"error"})));
  }
  // A server that does not know the audience field ignores it and accepts the token for any audience. The
  // reply must name ours (TokenReviewStatus.audiences).
  const Json& audiences = FieldAt(status, {"audiences"});
  if (std::find(audiences.begin(), audiences.end(), Json(audience)) == audiences.end())
    return absl::UnauthenticatedError(absl::StrCat("review a token: it is not meant for \"", audience, "\""));
  return ReviewedToken{TextAt(status, {"user", "username"}),
                       ExtraOf(status, "authentication.kubernetes.io/pod-name"),
                       ExtraOf(status, "authentication.kubernetes.io/pod-uid"),
                       ExtraOf(status, "authentication.kubernetes.io/node-name"),
                       ExtraOf(status, "authentication.kubernetes.io/node-uid")};
}

}  // namespace lunkeeper::kube
