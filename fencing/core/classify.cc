// The evidence table. Each row needs two independent channels to agree before it fences, as a single silent
// channel may be a fault of that channel or of this observer. The order of the questions is part of it:
//
//   network arrives ──► the node itself says what is wrong: storage path, kubelet, or nothing
//   network silent, storage alive ──► it works; at most it is cut off
//   network silent, storage silent ──► dead, if its kernel or its kubelet is silent too
//   storage unknown ──► hold: no array is up that could tell a dead node from one that only we do not hear

#include "fencing/core/classify.h"

#include <algorithm>

namespace lunkeeper::fencing {
namespace {

constexpr std::string_view kDead = "dead or fully isolated: no heartbeat, no I/O, its kernel does not answer";
constexpr std::string_view kHungOrDead = "hung or dead: no heartbeat, no I/O, its kubelet is not ready";

// The control plane does not see its kubelet, but the node does its work as far as the arrays see. The time
// in which a node was away counts for nothing once it is back: it has yet to begin its work, and its kubelet.
// Where Kubernetes is trusted, its word about this very node counts, and not that a lease is late. A node
// whose heartbeats arrive works but for its way to the control plane, also if its pods do no I/O.
Classification ClassifyCutOff(const Signals& signals, const Settings& settings) {
  const auto lasts = [&](Span time) { return std::min(time, signals.here_for) >= settings.partition_grace; };
  const bool quiet = signals.network != Network::kArrives && settings.partitioned != Partitioned::kHold &&
                     lasts(std::min(signals.io_quiet_for, signals.not_ready_for));
  const bool trusted =
      settings.partitioned == Partitioned::kTrustKubernetes && signals.met && lasts(signals.unready_for);
  if (!quiet && !trusted)
    return {Response::kHold, "cut off from the control plane; its workload may be fine"};
  return {.response = Response::kFence,
          .what = quiet ? "cut off from the control plane and without I/O"
                        : "not ready for Kubernetes, which is trusted although its I/O may go on",
          .despite_io = trusted};
}

Classification ClassifyHeard(const Signals& signals, const Settings& settings) {
  if (!signals.lost.empty()) return {Response::kAskToLeave, "its storage path is lost"};
  if (signals.kubelet == Kubelet::kNotReady && signals.hung_for > Span()) {
    // Both sides have to say so for the whole probation: the node, which asks its own kubelet, and the API
    // server.
    const bool over = std::min(signals.hung_for, signals.not_ready_for) >= settings.probation;
    return {over ? Response::kFence : Response::kHold, "its kubelet or container runtime hangs"};
  }
  if (signals.kubelet == Kubelet::kNotReady) {
    auto cut_off = ClassifyCutOff(signals, settings);
    cut_off.late_lease = signals.late_lease;
    return cut_off;
  }
  if (signals.hung_for > Span())
    return {.response = Response::kHold,
            .what = "its kubelet or container runtime does not answer locally",
            .works = true};
  return {};
}

// No heartbeat and no I/O reach any array that is up.
// What no single fault can look like: all channels that the node was met on fell silent together, and so did
// a kernel which answered until then. A closed stream fits too, as a shutdown closes it before the kernel
// ends.
bool IsDead(const Signals& signals, const Settings& settings) {
  return signals.met && signals.storage == Storage::kSilent && signals.quiet_for() >= settings.silence &&
         signals.together && signals.kernel == Kernel::kUnanswered && !signals.renewed_since;
}

Classification ClassifySilent(const Signals& signals, const Settings& settings) {
  if (signals.kubelet == Kubelet::kReady)
    return {.response = Response::kHold,
            .what = "its plugin hangs or restarts; the kubelet is well",
            .plugin = true};
  if (signals.kubelet == Kubelet::kUnknown)
    return {Response::kHold, "silent; the API server cannot say whether its kubelet is well"};
  // A node that this observer never met may only be one whose address it has not learned yet, so it waits
  // longer.
  const auto known = signals.met ? settings.slow_silence : settings.never_met_silence;
  // A plugin whose stream ended may be upgraded, and its kubelet with it, unless their kernel has ended, too.
  // Where this observer could not ask the kernel before either, that is not known.
  const bool upgraded = signals.network == Network::kClosed && !signals.kernel_gone;
  const auto enough = upgraded ? std::max(known, settings.probation) : known;
  // Its plugin may hang while its work goes on there.
  if (signals.io_seen_for < std::min(signals.quiet_for(), enough))
    return {Response::kHold, "silent; a part of an array cannot say whether it still does I/O"};
  return {signals.quiet_for() >= enough ? Response::kFence : Response::kHold, kHungOrDead};
}

Classification ClassifyRows(const Signals& signals, const Settings& settings, bool self_test) {
  if (signals.network == Network::kArrives) return ClassifyHeard(signals, settings);
  if (self_test && IsDead(signals, settings)) return {Response::kFence, kDead, true};
  // Well as far as Kubernetes knows, and no heartbeat of it has come yet: nothing to tell anybody.
  if (signals.network == Network::kNeverArrived && signals.kubelet == Kubelet::kReady)
    return {Response::kHold, ""};
  switch (signals.storage) {
    case Storage::kUnknown:
      return {Response::kHold, "silent; no array can say whether it still does I/O"};
    case Storage::kAlive:
      if (signals.kubelet == Kubelet::kNotReady) return ClassifyCutOff(signals, settings);
      if (signals.network == Network::kClosed)
        return {.response = Response::kHold, .what = "its plugin restarts", .plugin = true};
      return {.response = Response::kHold, .what = "cut off from the controllers only", .works = true};
    case Storage::kSilent:
      return ClassifySilent(signals, settings);
  }
  return {};
}

}  // namespace

Classification Classify(const Signals& signals, const Settings& settings, bool self_test) {
  auto classification = ClassifyRows(signals, settings, self_test);
  classification.unmet = !signals.met;
  classification.alive = signals.network == Network::kArrives || signals.storage == Storage::kAlive;
  return classification;
}

bool SaysDead(std::string_view what) { return what == kDead || what == kHungOrDead; }

}  // namespace lunkeeper::fencing
