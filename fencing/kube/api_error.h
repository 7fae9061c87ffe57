#pragma once
// Maps the API server's refusals to status codes, in one place. Pure functions, thread-safe.
//   INVALID_ARGUMENT 400, 422     UNAUTHENTICATED 401      PERMISSION_DENIED 403   NOT_FOUND 404
//   ALREADY_EXISTS   409 with that reason; ABORTED any other 409: the object is not as the caller expected
//   OUT_OF_RANGE     410: the server no longer keeps that version or page; list again
//   UNAVAILABLE      429 and 5xx: ask again later         UNKNOWN       anything else

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "fencing/kube/json.h"

namespace lunkeeper::kube {

// `what` names the call and its object, such as "delete pods/db/db-0". `body` is a metav1.Status or any text.
absl::Status ReplyError(const std::string& what, int http_status, std::string_view body);

// The same for the metav1.Status in a watch's ERROR event.
absl::Status EventError(const std::string& what, const Json& status);

}  // namespace lunkeeper::kube
