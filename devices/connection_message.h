#pragma once
// Between a Connection and its message, which three protocols share: the array agent's, the coordinator's and
// the data path's. The message carries the secrets in the clear: only TLS or a private socket may take
// it. Pure functions.

#include "devices/connection.pb.h"
#include "devices/types.h"

namespace lunkeeper {

devices::v1::Digests ToMessage(Digests digests);
// Of a value that is not known, from a newer program: all. Never less than was asked for.
Digests FromMessage(devices::v1::Digests digests);
devices::v1::Connection ToMessage(const Connection& connection);
Connection FromMessage(const devices::v1::Connection& message);
// For who may know the way, but not go it.
void ClearSecrets(devices::v1::Connection& message);

}  // namespace lunkeeper
