#pragma once
// Parses one event of a watch. Pure function, thread-safe. An ERROR event becomes the status that it stands
// for (api_error.h). INTERNAL: the bytes are no event.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

// `what` is for errors: "watch pods".
absl::StatusOr<Change> ParseWatchEvent(const std::string& what, std::string_view text);

}  // namespace lunkeeper::kube
