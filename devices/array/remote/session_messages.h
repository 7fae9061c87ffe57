#pragma once
// What of an array's sessions is seen, and what is not, as messages. Pure functions, thread-safe. An older
// side leaves `unseen` out: it sees all, or fails.

#include "devices/array/grant_store.h"
#include "devices/array/remote/array.pb.h"

namespace lunkeeper::wire {

array::v1::SessionsResponse ToMessage(const SeenSessions& seen);
SeenSessions FromMessage(const array::v1::SessionsResponse& response);

}  // namespace lunkeeper::wire
