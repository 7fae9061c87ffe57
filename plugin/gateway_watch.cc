// The watch asks, and nobody tells it: a gateway that takes an array knows no controller, and a controller
// that was away would miss the news. The newest gateway alone says how it came, so one that came and went
// between two looks is not counted. The agents are asked on the watch's thread; everybody else gets what it
// saw last, so an array that hangs delays neither `lunkeeper status` nor the metrics.
#include "plugin/gateway_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace lunkeeper {
namespace {

// A controller that starts later says nothing of it any more. Kubernetes keeps events for an hour, so within
// this time it knows which ones it has.
constexpr absl::Duration kIsNews = absl::Minutes(10);

// A gateway that takes the array, dies before anybody has asked it and is started again says that it was
// started again. That another one had the array before is news all the same.
GatewayState AddWhatWasSeen(const std::optional<GatewayState>& last, GatewayState now) {
  if (!last || IsMove(now.change)) return now;
  if (last->epoch == now.epoch) {
    now.change = last->change;
    now.before = last->before;
  } else if (last->host != now.host) {
    now.change = GatewayChange::kUnknown;
    now.before = last->host;
  }
  return now;
}

// Also of one of which nobody knows how it came to have the array.
bool IsOther(const GatewayState& state) {
  return IsMove(state.change) || (state.change == GatewayChange::kUnknown && !state.before.empty());
}

}  // namespace

GatewayWatch::GatewayWatch(std::function<std::vector<ArrayGateway>()> ask,
                           std::function<absl::Status(const ArrayGateway&)> tell, absl::Duration look_every)
    : ask_(std::move(ask)), tell_(std::move(tell)), looks_(look_every, [this] { Look(); }) {}

void GatewayWatch::Look() {
  const std::vector<ArrayGateway> gateways = ask_();
  NoteAnswers(gateways);
  for (ArrayGateway gateway : gateways) {
    if (gateway.state.epoch == 0) continue;
    if (NoteGateway(gateway)) LogInfo("array", DescribeGateway(gateway));
    if (tell_ && IsOther(gateway.state)) TellGateway(gateway);
  }
}

// An array that is asked no more, or has no gateways any more, is served by none: what was seen of it would
// stand in `lunkeeper status` until this process ends.
void GatewayWatch::NoteAnswers(const std::vector<ArrayGateway>& gateways) {
  const absl::MutexLock lock(&mu_);
  for (auto& [array, seen] : seen_) {
    const auto found = std::ranges::find(gateways, array, &ArrayGateway::array);
    seen.answers = found != gateways.end() && found->state.epoch != 0;
    if (found == gateways.end()) seen.state.reset();
  }
}

// What a controller sees first is no change: it does not know what was before.
bool GatewayWatch::NoteGateway(ArrayGateway& gateway) {
  const absl::MutexLock lock(&mu_);
  Seen& seen = seen_[gateway.array];
  const bool is_other = seen.state && seen.state->epoch != gateway.state.epoch;
  gateway.state = AddWhatWasSeen(seen.state, gateway.state);
  seen.state = gateway.state;
  seen.answers = true;
  const bool was_given = gateway.state.change == GatewayChange::kHandover;
  if (is_other && IsOther(gateway.state)) ++(was_given ? seen.handovers : seen.takeovers);
  return is_other;
}

// Repeated until Kubernetes knows it. Whether it knows it already, it says itself (gateway_event.h), so that
// this process need not remember what others, or the one before it, have told.
void GatewayWatch::TellGateway(const ArrayGateway& gateway) {
  uint64_t& told = told_[gateway.array];
  if (told == gateway.state.epoch || gateway.state.served_for >= kIsNews) return;
  const absl::Status done = tell_(gateway);
  if (done.ok()) {
    told = gateway.state.epoch;
  } else if (std::exchange(failed_[gateway.array], gateway.state.epoch) != gateway.state.epoch) {
    LogWarn("array", absl::StrCat("Kubernetes takes no event of the gateway that array ", gateway.array,
                                  " has got; it is tried again for ten minutes: ", done.message()));
  }
}

std::vector<WatchedGateway> GatewayWatch::ListGateways() const {
  const absl::MutexLock lock(&mu_);
  std::vector<WatchedGateway> gateways;
  for (const auto& [array, seen] : seen_)
    if (seen.state) gateways.push_back({{array, *seen.state}, seen.answers});
  return gateways;
}

// The counters are there from the first look on, with 0, so that their increase can be seen.
void GatewayWatch::ReportMetrics(Metrics& metrics) const {
  Metrics::Series since, epochs, takeovers, handovers, phases;
  {
    const absl::MutexLock lock(&mu_);
    for (const auto& [array, seen] : seen_) {
      takeovers[{{"array", array}}] = static_cast<double>(seen.takeovers);
      handovers[{{"array", array}}] = static_cast<double>(seen.handovers);
      if (!seen.state) continue;
      since[{{"array", array}, {"host", seen.state->host}}] =
          absl::ToDoubleSeconds(seen.state->since - absl::UnixEpoch());
      epochs[{{"array", array}}] = static_cast<double>(seen.state->epoch);
      for (const GatewayState::Phase& phase : seen.state->phases)
        phases[{{"array", array}, {"phase", phase.name}}] = absl::ToDoubleSeconds(phase.took);
    }
  }
  metrics.SetGauge("lunkeeper_array_gateway_since_seconds",
                   "Since when the gateway of this host serves the array, in Unix time; 0: no more", since);
  metrics.SetGauge("lunkeeper_array_gateway_epoch", "Rises with each gateway that takes the array", epochs);
  metrics.SetGauge("lunkeeper_array_takeover_seconds",
                   "How long the gateway needed until it served the array, by phase", phases);
  metrics.SetCounter("lunkeeper_array_takeovers_total",
                     "Gateways that took the array from one that had fallen silent", takeovers);
  metrics.SetCounter("lunkeeper_array_handovers_total",
                     "Gateways that took the array from one that gave it away", handovers);
}

}  // namespace lunkeeper
