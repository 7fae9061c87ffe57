#pragma once
// Which gateway serves an array, as a message. Pure functions, thread-safe. What an agent says is for people:
// a text that is no name is left out, and so is what a message has too much of.

#include <optional>

#include "devices/array/gateway_state.h"
#include "devices/array/remote/array.pb.h"

namespace lunkeeper::wire {

array::v1::CheckResponse ToMessage(const std::optional<GatewayState>& state);
// Nothing: the agent is older, or its array has no gateways.
std::optional<GatewayState> FromMessage(const array::v1::CheckResponse& response);

}  // namespace lunkeeper::wire
