#pragma once
// What of an array's sessions is seen, and what is not, as messages. Pure functions, thread-safe. An older
// side leaves `unseen` out: it sees all, or fails.

#include "absl/status/status.h"
#include "devices/array/grant_store.h"
#include "devices/array/remote/array.pb.h"

namespace lunkeeper::wire {

array::v1::SessionsResponse ToMessage(const SeenSessions& seen);
// All of them, or an error, to a caller that does not take what is unseen for unknown.
absl::Status AnswerSessions(GrantStore& grants, const array::v1::SessionsRequest& request,
                            array::v1::SessionsResponse* response);
SeenSessions FromMessage(const array::v1::SessionsResponse& response);

}  // namespace lunkeeper::wire
