#pragma once
// A planned move of an array on Ceph from the gateway that has it to one that stands by:
//
//   a standby is seen, and Ceph says that this gateway has the array  (up to here an error changes nothing)
//     -> calls are refused, and nothing looks after the tgtds any more
//     -> portals are closed, sessions end, commands in hand end, images are closed  (I/O stands from here on)
//     -> the tgtds are killed
//     -> the record says that the array is given away
//     -> another gateway takes it as it takes that of a dead one, without the wait for its silence
//
// From the second line on there is no way back: this process is to end, and stands by when it is started
// again. What does not go in order, such as a command that does not end, is left to the next gateway, which
// shuts out every client of this one before it opens anything; so it costs time, and no byte. One that is
// killed before the last step leaves a record that is renewed no more. For one call in the life of an array.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lunkeeper {

class GatewayLease;
class TgtServers;

struct HandoverProgress {
  enum class Step {
    kBegun,     // `host` stands by
    kStopping,  // I/O stands from now on
    kStopped,   // no tgtd runs; `trouble`: not in order
    kReleased,  // the next one can take the array; `trouble`: nobody knows whether it can before 5 s are over
    kTaken,     // by `host`; `trouble`: nobody has, and this gateway takes it again when it is started
  };
  Step step = Step::kBegun;
  std::string host = {};
  absl::Status trouble = absl::OkStatus();
  std::vector<std::string> peer_portals = {};  // with kTaken: where nodes find other gateways
};

// Called at each step. False, which counts at the first alone: give up.
using HandoverWatch = std::function<bool(const HandoverProgress&)>;

struct HandoverParts {
  std::string array, pool_dir;
  std::vector<std::string> peer_portals;
  GatewayLease& lease;
  TgtServers& servers;
  std::function<void()> stop_serving;  // calls are refused when it returns
};

// Ends the tgtds of an array that is given away because this gateway cannot serve it. Of several, others than
// the one that failed may have their portals open; once another gateway has the array, they would answer
// nodes with errors. `servers`: if there are any yet. An error: some may go on.
absl::Status EndUnserved(TgtServers* servers, const std::string& pool_dir);

// FAILED_PRECONDITION: no gateway stands by. UNAVAILABLE: this one may have lost the array. CANCELLED: as the
// watch wants it. Nothing has changed then. OK: this process has the array no more.
absl::Status HandOverArray(const HandoverParts& parts, const HandoverWatch& watch);

}  // namespace lunkeeper
