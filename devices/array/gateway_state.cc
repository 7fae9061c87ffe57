// One sentence for the log, `lunkeeper status` and Kubernetes. It has no figure that changes while the same
// gateway serves, so it is the same one wherever and whenever somebody reads it.
#include "devices/array/gateway_state.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lunkeeper {
namespace {

std::string FormatSeconds(absl::Duration duration) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(duration));
}

// Of the silence, or of all that came after it: the first is what the gateways wait for, the second what they
// do.
absl::Duration TimeOf(const GatewayState& state, bool silence) {
  absl::Duration sum;
  for (const GatewayState::Phase& phase : state.phases)
    if ((phase.name == "silence") == silence) sum += phase.took;
  return sum;
}

std::string DescribeChange(const GatewayState& state) {
  const std::string ready = absl::StrCat("; it was ready ", FormatSeconds(TimeOf(state, false)), " later");
  switch (state.change) {
    case GatewayChange::kFirst:
      return ", and nobody had it before";
    case GatewayChange::kRestart:
      return ", whose agent was started again";
    case GatewayChange::kTakeover:
      return absl::StrCat(": ", state.before, " was shut out after ", FormatSeconds(TimeOf(state, true)),
                          " of silence", ready);
    case GatewayChange::kHandover:
      return absl::StrCat(": ", state.before, " gave it away", ready);
    case GatewayChange::kUnknown:
      break;
  }
  return state.before.empty() ? "" : absl::StrCat(": ", state.before, " had it before");
}

}  // namespace

std::string DescribeGateway(const ArrayGateway& gateway) {
  const GatewayState& state = gateway.state;
  return absl::StrCat("array ", gateway.array, " is served by gateway ", state.host, " since ",
                      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", state.since, absl::UTCTimeZone()), " (epoch ",
                      state.epoch, ")", DescribeChange(state));
}

}  // namespace lunkeeper
