#include "fencing/agent/path_watch.h"

#include "base/host_port.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(100);
constexpr int kMostUnanswered = 8;

}  // namespace

void PathWatch::Watch(const std::set<std::string>& portals) {
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(unanswered_, [&](const auto& entry) { return !portals.contains(entry.first); });
    for (const std::string& portal : portals) unanswered_.emplace(portal, 0);
  }
  if (portals.empty()) {
    knocks_.reset();
    prober_.reset();
  } else if (!knocks_) {
    prober_ = fencing::MakeProber();
    knocks_.emplace(kPeriod, [this] { Knock(); });
  }
}

bool PathWatch::IsLost(const std::string& portal) const {
  absl::MutexLock lock(&mutex_);
  const auto found = unanswered_.find(portal);
  return found != unanswered_.end() && found->second >= kMostUnanswered;
}

void PathWatch::Knock() {
  std::set<std::string> portals;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [portal, count] : unanswered_) portals.insert(portal);
  }
  for (const std::string& portal : portals) {
    const auto where = ParseHostPort(portal);
    if (!where) continue;
    prober_->Probe(where->host, where->port, [this, portal](bool answered) {
      absl::MutexLock lock(&mutex_);
      const auto found = unanswered_.find(portal);
      if (found != unanswered_.end()) found->second = answered ? 0 : found->second + 1;
    });
  }
}

}  // namespace lunkeeper
