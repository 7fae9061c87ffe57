#pragma once
// `lunkeeper top`: which volumes are busy now. On a controller, all volumes with the nodes that use them, by
// what the arrays' sessions have done; on a node its own volumes, with latencies, by what its data path has
// done. Nothing is measured for it: two readings of counters that are kept anyway, and what they differ by.
// One thread; RatesBetween is pure.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "plugin/admin.pb.h"
#include "plugin/admin_client.h"

namespace lunkeeper {

// Of one volume on one node, in a second.
struct IoRates {
  std::string volume, node;
  double reads = 0, writes = 0, read_bytes = 0, written_bytes = 0;
  // How long one took on average, and how many were under way; none, where only an array has counted.
  std::optional<double> read_milliseconds, write_milliseconds, in_flight;
};

// The busiest first. A volume that is new in `after` is left out: nobody knows since when it has counted.
std::vector<IoRates> RatesBetween(const admin::v1::StatusResponse& before,
                                  const admin::v1::StatusResponse& after, absl::Duration elapsed);

void AddTopCommand(CLI::App* app, int* exit_code, const MakeClient& cluster);

}  // namespace lunkeeper
