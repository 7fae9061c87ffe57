#pragma once
// The one place where an absl::Status becomes a grpc::Status, and the other way round. The two lists of codes
// share names and numbers (https://grpc.github.io/grpc/core/md_doc_statuscodes.html), so code and message
// stay as they are. Pure functions, thread-safe.

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace lunkeeper {

// A code outside the list becomes UNKNOWN.
grpc::Status ToGrpcStatus(const absl::Status& status);
// Likewise; details and metadata of the gRPC status are lost.
absl::Status FromGrpcStatus(const grpc::Status& status);

// How a service answers an RPC: with the status of `handler`, which fills in the response.
template <class Handler>
grpc::Status AnswerRpc(const Handler& handler) {
  return ToGrpcStatus(handler());
}

}  // namespace lunkeeper
