#pragma once
// Between a Connection and its message. Pure functions.

#include "devices/connection.pb.h"
#include "devices/types.h"

namespace lunkeeper {

devices::v1::Connection ToMessage(const Connection& connection);
Connection FromMessage(const devices::v1::Connection& message);

}  // namespace lunkeeper
