#include "fencing/agent/path_watch.h"

#include "base/host_port.h"

// A periodic thread starts the probes; the prober's own thread delivers their answers. `mutex_` guards the
// counters that both use. Probes are only made while a device reconnects, or heartbeats to its array are
// missing (see HeartbeatSender), so in normal operation there is no thread and no traffic.
namespace lunkeeper {
namespace {

constexpr absl::Duration kProbeEvery = absl::Milliseconds(100);
// In a network that loses one packet in five, each way, 36 % of the probes get no answer (within the 400 ms
// of a probe the kernel sends one SYN). Eight in a row are then one chance in 3,500.
constexpr int kMostUnanswered = 8;

}  // namespace

void PathWatch::WatchPortals(const std::set<std::string>& portals) {
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(unanswered_, [&](const auto& entry) { return !portals.contains(entry.first); });
    for (const std::string& portal : portals) unanswered_.emplace(portal, 0);
  }
  if (portals.empty()) {
    probes_.reset();  // first: its thread uses the prober
    prober_.reset();
  } else if (!probes_) {
    prober_ = make_prober_();
    probes_.emplace(
        kProbeEvery, [this] { ProbePortals(); }, executor_);
  }
}

bool PathWatch::IsLost(const std::string& portal) const {
  absl::MutexLock lock(&mutex_);
  const auto found = unanswered_.find(portal);
  return found != unanswered_.end() && found->second >= kMostUnanswered;
}

void PathWatch::ProbePortals() {
  std::set<std::string> portals;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [portal, count] : unanswered_) portals.insert(portal);
  }
  for (const std::string& portal : portals) {
    const auto where = ParseHostPort(portal);
    if (!where) continue;
    // The answer may arrive after WatchPortals has dropped the portal; its counter is not made again then.
    // That this node has no route is its path's loss as well, such as with its storage interface down.
    prober_->Probe(where->host, where->port, [this, portal](ProbeResult result) {
      if (NoteResult(portal, IsAnswer(result))) turned_();
    });
  }
}

bool PathWatch::NoteResult(const std::string& portal, bool answered) {
  absl::MutexLock lock(&mutex_);
  const auto found = unanswered_.find(portal);
  if (found == unanswered_.end()) return false;
  const bool was_lost = found->second >= kMostUnanswered;
  found->second = answered ? 0 : found->second + 1;
  return was_lost != (found->second >= kMostUnanswered);
}

}  // namespace lunkeeper
