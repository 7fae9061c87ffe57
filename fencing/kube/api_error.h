#pragma once
// What the API server's refusals mean, in one place. Pure functions, thread-safe.
//   INVALID_ARGUMENT 400, 422     UNAUTHENTICATED 401      PERMISSION_DENIED 403   NOT_FOUND 404
//   ALREADY_EXISTS   409 by reason; ABORTED every other 409: the object is not as the caller thought
//   OUT_OF_RANGE     410: that version or page is no longer kept, list again
//   UNAVAILABLE      429 and 5xx: ask again later         UNKNOWN       anything else

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "fencing/kube/json.h"

namespace lunkeeper::kube {

// `what` is what was being done and on what: "delete pods/db/db-0". `body` is a metav1.Status, or any text.
absl::Status ReplyError(const std::string& what, int http_status, std::string_view body);

// The same for a metav1.Status that came as the object of a watch's ERROR event.
absl::Status EventError(const std::string& what, const Json& status);

}  // namespace lunkeeper::kube
