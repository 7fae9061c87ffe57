#pragma once
// The one place where an absl::Status becomes what an orchestrator sees. Thread-safe.

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace lunkeeper {

// The same code (the two lists share names and numbers) and the same message. A code outside the list is
// UNKNOWN.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace lunkeeper
