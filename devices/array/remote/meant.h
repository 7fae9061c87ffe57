#pragma once
// Whether a call that reached an agent is meant for the array, and for the copy of its pool, that it serves.
// An address may belong to another array since, or to a host that came back with an old copy: what was made
// or fenced there would be lost. Pure functions, thread-safe.

#include <grpcpp/server_context.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "devices/array/pool_identity.h"

namespace lunkeeper {

// FAILED_PRECONDITION: the call names another array, or none.
absl::Status CheckArrayMeant(const grpc::ServerContext& context, const std::string& array);
// The newest copy that the client knows; nothing: it knows none.
std::optional<PoolIdentity> ReadCopyMeant(const grpc::ServerContext& context);
// As CheckCopy, with the newest copy that the client knows. OK: it knows none, or CheckArrayMeant fails.
absl::Status CheckCopyMeant(const grpc::ServerContext& context, const std::string& array,
                            const PoolIdentity& served);

}  // namespace lunkeeper
