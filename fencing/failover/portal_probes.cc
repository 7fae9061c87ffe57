#include "fencing/failover/portal_probes.h"

#include <utility>

#include "base/host_port.h"

namespace lunkeeper::fencing {
namespace {

constexpr Span kAskAgain = 20_s;

}  // namespace

void PortalProbes::ProbeArray(const ProbePortals& call, Instant now) {
  std::set<std::string> portals;
  bool ask = false;
  {
    const absl::MutexLock lock(&mutex_);
    Known& known = known_[call.array];
    portals = known.portals;
    ask = !known.asked_at || now - *known.asked_at >= kAskAgain;
    if (ask) known.asked_at = now;
  }
  ProbeAll(call.array, portals);
  if (!ask) return;
  arrays_.PostWork(call.array, [this, call](Array* array) {
    if (array != nullptr) AskAgent(call, *array);
  });
}

// By the node's grants, as the node itself knows them: its heartbeat LUN is there as well. Without a grant
// nothing of the node is to be fenced.
void PortalProbes::AskAgent(const ProbePortals& call, Array& array) {
  const auto grants = array.grants().ListGrants({.volume = {}, .node = call.node});
  if (!grants.ok()) return;
  std::set<std::string> portals;
  for (const Grant& grant : *grants) {
    portals.insert(grant.connection.portal);
    portals.insert(grant.connection.other_portals.begin(), grant.connection.other_portals.end());
  }
  // Once it is fenced it has none, and the array is where it was.
  if (portals.empty()) return;
  {
    const absl::MutexLock lock(&mutex_);
    known_[call.array].portals = portals;
  }
  ProbeAll(call.array, portals);
}

// A refusal may be that of a firewall on the way, and does not show that the array serves.
void PortalProbes::ProbeAll(const ArrayId& array, const std::set<std::string>& portals) {
  for (const std::string& portal : portals) {
    const auto where = ParseHostPort(portal);
    if (!where) continue;
    prober_->Probe(where->host, where->port, [answered = answered_, array](ProbeResult result) {
      if (result == ProbeResult::kAccepted) answered(array);
    });
  }
}

}  // namespace lunkeeper::fencing
