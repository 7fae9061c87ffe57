#pragma once
// Whether another host serves: its portal takes connections. For when nothing else can be asked.
//
// Thread-safe, without state. Nothing is sent, and the connection ends at once.

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lunkeeper {

// Whether one of them takes a connection within this time; all are asked at once. "10.0.0.5:3260",
// "[fd00::5]:3260"; what is no numeric address is passed over.
bool FindOpenPortal(const std::vector<std::string>& portals, absl::Duration within);

}  // namespace lunkeeper
