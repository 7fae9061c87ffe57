#pragma once
// The CSI Identity service: who we are, what the driver offers, and whether this process is ready. What is
// offered is the driver's, the same on every socket: an orchestrator that asks the node's socket learns there
// that volumes have to be published by the controller's. Thread-safe. The checks are asked anew for each
// Probe; each must answer within about a second.
//
// Probe tells three states apart, as CSI wants it. Ready. Not ready yet (`ready` fails): calls may fail, and
// a restart would help nobody. Broken (`healthy` has failed in each Probe for `broken_after`):
// FAILED_PRECONDITION, on which an orchestrator may restart the plugin.

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "csi/v1/csi.grpc.pb.h"

namespace lunkeeper {

struct ProbeChecks {
  std::function<absl::Status()> ready;
  std::function<absl::Status()> healthy;
  // What is just being replaced, such as a data path in an upgrade, is back by then.
  absl::Duration broken_after = absl::Seconds(10);
};

std::unique_ptr<csi::v1::Identity::Service> MakeIdentityService(ProbeChecks checks);

}  // namespace lunkeeper
