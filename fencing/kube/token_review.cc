#include "fencing/kube/token_review.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper::kube {
namespace {

// status.user.extra: each key has a list of values.
std::string ExtraOf(const Json& status, const char* key) {
  const Json& values = FieldAt(status, {"user", "extra", key});
  if (!values.is_array() || values.size() != 1 || !values[0].is_string()) return "";
  return values[0].get<std::string>();
}

}  // namespace

absl::StatusOr<TokenIdentity> ReviewToken(KubeClient& client, const std::string& token,
                                          const std::string& audience, const Limits& limits) {
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
  const Json& audiences = FieldAt(status, {"audiences"});
  if (std::find(audiences.begin(), audiences.end(), Json(audience)) == audiences.end())
    return absl::UnauthenticatedError(absl::StrCat("review a token: it is not meant for \"", audience, "\""));
  return TokenIdentity{TextAt(status, {"user", "username"}),
                       ExtraOf(status, "authentication.kubernetes.io/pod-name"),
                       ExtraOf(status, "authentication.kubernetes.io/pod-uid"),
                       ExtraOf(status, "authentication.kubernetes.io/node-name"),
                       ExtraOf(status, "authentication.kubernetes.io/node-uid")};
}

}  // namespace lunkeeper::kube
