#include "fencing/core/classify.h"

#include <algorithm>

namespace lunkeeper::fencing {
namespace {

// The control plane does not see its kubelet, but the node does its work as far as the arrays see.
Classification CutOff(const Signals& signals, const Settings& settings) {
  const auto quiet_for = std::min(signals.io_quiet_for, signals.not_ready_for);
  if (!settings.fence_partitioned || quiet_for < settings.partition_grace)
    return {Response::kHold, "cut off from the control plane; its workload may be fine"};
  return {Response::kFence, "cut off from the control plane and without I/O"};
}

Classification Arriving(const Signals& signals, const Settings& settings) {
  if (!signals.lost.empty()) return {Response::kDrain, "its storage path is lost"};
  if (signals.kubelet == Kubelet::kNotReady && signals.hung_for > Span()) {
    const bool over = std::min(signals.hung_for, signals.not_ready_for) >= settings.probation;
    return {over ? Response::kFence : Response::kHold, "its kubelet or container runtime hangs"};
  }
  if (signals.kubelet == Kubelet::kNotReady) return CutOff(signals, settings);
  if (signals.hung_for > Span())
    return {Response::kHold, "its kubelet or container runtime does not answer locally"};
  return {};
}

// No heartbeat and no I/O reach any array that is up.
Classification AllSilent(const Signals& signals, const Settings& settings) {
  const bool heard = signals.network == Network::kSilent;
  const auto both = std::min(signals.silent_for, signals.storage_silent_for);
  if (heard && signals.kernel == Kernel::kUnanswered && both >= settings.silence)
    return {Response::kFence, "dead or fully isolated: no heartbeat, no I/O, its kernel does not answer"};
  if (signals.kubelet == Kubelet::kReady)
    return {Response::kHold, "its plugin hangs or restarts; the kubelet is well"};
  if (signals.kubelet == Kubelet::kUnknown)
    return {Response::kHold, "silent; the API server cannot say whether its kubelet is well"};
  const auto enough = signals.network == Network::kUnheard ? settings.unheard_silence : settings.slow_silence;
  return {both >= enough ? Response::kFence : Response::kHold,
          "hung or dead: no heartbeat, no I/O, its kubelet is not ready"};
}

}  // namespace

Classification Classify(const Signals& signals, const Settings& settings) {
  if (signals.network == Network::kArrives) return Arriving(signals, settings);
  if (signals.network == Network::kUnheard && signals.kubelet == Kubelet::kReady)
    return {Response::kHold, ""};
  switch (signals.storage) {
    case Storage::kUnknown:
      return {Response::kHold, "silent; no array can say whether it still does I/O"};
    case Storage::kAlive:
      if (signals.kubelet == Kubelet::kNotReady) return CutOff(signals, settings);
      return {Response::kHold, signals.network == Network::kClosed ? "its plugin restarts"
                                                                   : "cut off from the controllers only"};
    case Storage::kSilent:
      return AllSilent(signals, settings);
  }
  return {};
}

}  // namespace lunkeeper::fencing
