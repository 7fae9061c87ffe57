#pragma once
// One event of a watch, from its bytes. Pure function, thread-safe. An ERROR event comes back as the status
// it means (api_error.h); INTERNAL for what is no event at all.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

// `what` is for errors: "watch pods".
absl::StatusOr<Change> ParseWatchEvent(const std::string& what, std::string_view text);

}  // namespace lunkeeper::kube
