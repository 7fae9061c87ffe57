#include "devices/array/remote/gateway_messages.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"

namespace lunkeeper::wire {
namespace {

namespace v1 = array::v1;

constexpr size_t kLongestName = 255;  // of a host
constexpr int kMostPhases = 16;

// They become labels of metrics, and parts of sentences.
std::string ReadName(const std::string& text) {
  const auto is_fine = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
  };
  return text.size() <= kLongestName && std::ranges::all_of(text, is_fine) ? text : "";
}

GatewayChange ReadChange(v1::GatewayChange change) {
  return change >= v1::GATEWAY_CHANGE_UNSPECIFIED && change <= v1::GATEWAY_CHANGE_HANDOVER
             ? static_cast<GatewayChange>(change)
             : GatewayChange::kUnknown;
}

}  // namespace

// It goes with the answer to Check, which a controller asks of each agent anyway.
v1::CheckResponse ToMessage(const std::optional<GatewayState>& state) {
  v1::CheckResponse response;
  if (!state) return response;
  v1::Gateway* const gateway = response.mutable_gateway();
  gateway->set_host(state->host);
  gateway->set_epoch(state->epoch);
  gateway->set_before(state->before);
  gateway->set_change(static_cast<v1::GatewayChange>(state->change));
  gateway->set_since_unix_nanos(absl::ToUnixNanos(state->since));
  gateway->set_served_for_nanos(absl::ToInt64Nanoseconds(state->served_for));
  for (const GatewayState::Phase& phase : state->phases) {
    v1::Gateway::Phase* const told = gateway->add_phases();
    told->set_name(phase.name);
    told->set_took_nanos(absl::ToInt64Nanoseconds(phase.took));
  }
  return response;
}

std::optional<GatewayState> FromMessage(const v1::CheckResponse& response) {
  if (!response.has_gateway()) return std::nullopt;
  const v1::Gateway& gateway = response.gateway();
  GatewayState state = {.host = ReadName(gateway.host()),
                        .epoch = gateway.epoch(),
                        .before = ReadName(gateway.before()),
                        .change = ReadChange(gateway.change()),
                        .since = absl::FromUnixNanos(gateway.since_unix_nanos()),
                        .served_for = absl::Nanoseconds(gateway.served_for_nanos())};
  for (const v1::Gateway::Phase& phase : gateway.phases())
    if (state.phases.size() < kMostPhases && !ReadName(phase.name()).empty())
      state.phases.push_back({phase.name(), absl::Nanoseconds(phase.took_nanos())});
  return state;
}

}  // namespace lunkeeper::wire
