#pragma once
// Which of several portals take connections. For when nothing else says whether a host serves.
//
// Thread-safe, without state. Nothing is sent, and the connection ends at once.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lunkeeper {

// The first that takes a connection within this time; all are asked at once. "10.0.0.5:3260",
// "[fd00::5]:3260"; what is no numeric address is passed over.
std::optional<std::string> FindOpenPortal(const std::vector<std::string>& portals, absl::Duration within);
// All that do; it takes as long as the slowest of them.
std::set<std::string> ListOpenPortals(const std::vector<std::string>& portals, absl::Duration within);

}  // namespace lunkeeper
