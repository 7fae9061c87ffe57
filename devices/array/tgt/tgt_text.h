#pragma once
// Readers of the text that tgtd's management socket answers with. Pure functions; lines they do not know are
// passed over, and nothing in the input is trusted: numbers that do not fit are dropped with their line.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lunkeeper {

struct TgtConnection {
  uint64_t session = 0;
  uint32_t connection = 0;
  std::string initiator;
  std::string address;  // the peer's, without its port
  friend bool operator==(const TgtConnection&, const TgtConnection&) = default;
};
// What `show` of a target's connections answers.
std::vector<TgtConnection> ParseTgtConnections(absl::string_view text);

struct TgtStatistics {
  int32_t target = 0;
  uint64_t session = 0;
  uint64_t reads = 0, writes = 0, read_bytes = 0, written_bytes = 0;
  friend bool operator==(const TgtStatistics&, const TgtStatistics&) = default;
};
// What `stat` of the system answers: one entry for each session, LUN 1 only.
std::vector<TgtStatistics> ParseTgtStatistics(absl::string_view text);

// What `show` of the portals answers: `address:port` each.
std::vector<std::string> ParseTgtPortals(absl::string_view text);

// What `show` of the accounts answers: the user of each.
std::vector<std::string> ParseTgtAccounts(absl::string_view text);

struct TgtTarget {
  int32_t number = 0;
  std::string name;
  bool open = false;  // some initiator may log in: the last step of making a target has been done
  int luns = 0;       // with LUN 0, which is tgtd's own
  friend bool operator==(const TgtTarget&, const TgtTarget&) = default;
};
// What `show` of all targets answers.
std::vector<TgtTarget> ParseTgtTargets(absl::string_view text);

}  // namespace lunkeeper
