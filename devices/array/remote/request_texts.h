#pragma once
// Checks the texts of requests, which come from other machines. Pure functions, thread-safe.

#include <google/protobuf/message.h>

#include "absl/status/status.h"

namespace lunkeeper {

// All texts of a request at once, by reflection: every text is a name or an id, and so a field that is added
// later is checked as well. INVALID_ARGUMENT: a text is too long, or has control characters.
absl::Status CheckTexts(const google::protobuf::Message& message);

}  // namespace lunkeeper
